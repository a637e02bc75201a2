"use strict";
// The page asks the daemon every two seconds for what it shows. It asks nothing while nobody looks.
const $ = id => document.getElementById(id);
const period = 2000, patience = 5000;
let view = "", selected = "", pageNumber = 0, open = 0, asking = null, answered = null, returning = "";

// el makes an element; children are nodes or texts, which are never read as HTML.
function el(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== false) e.setAttribute(key, value);
  }
  e.append(...children.filter(c => c !== undefined && c !== null));
  return e;
}

// put fills an element, if anything differs: a person may be reading, selecting or clicking there. The focus stays on the
// same link or button, or goes to the title if that is gone.
function put(id, ...children) {
  const old = $(id), next = old.cloneNode(false), key = e => e.id || e.getAttribute("href");
  const inside = old.contains(document.activeElement), focused = inside ? key(document.activeElement) : returning;
  next.append(...children);
  if (!old.isEqualNode(next)) old.replaceChildren(...next.childNodes);
  if (!focused || old.contains(document.activeElement)) return;
  const again = [...old.querySelectorAll("a, button")].find(e => key(e) === focused);
  if (again) { again.focus(); returning = ""; }
  else if (inside) $(view + "-title").focus();
}

// rows fills the body of a table. On a narrow screen, each cell shows the head of its column.
function rows(id, list, empty) {
  const heads = [...$(id).parentNode.querySelectorAll("th:not([hidden])")].map(h => h.textContent);
  for (const row of list) if (row.children.length === heads.length) heads.forEach((h, i) => row.children[i].dataset.head = h);
  put(id, ...(list.length ? list : [el("tr", {}, el("td", {colspan: heads.length, class: "dim"}, empty))]));
}

async function ask(path, query, signal) {
  const late = AbortSignal.timeout(patience);
  const r = await fetch("api/" + path + "?" + new URLSearchParams(query || {}), {signal: signal ? AbortSignal.any([signal, late]) : late});
  const value = await r.json();
  if (!r.ok) throw new Error(value.error || r.statusText);
  return value;
}

// reason says why an answer is missing.
const reason = e => e instanceof TypeError || e.name === "TimeoutError" ? "The daemon does not answer." : `The daemon answers: ${e.message}.`;

const count = n => (n || 0).toLocaleString("en-US");
const rate = (value, seconds) => seconds ? (value || 0).toLocaleString("en-US", {minimumFractionDigits: 1, maximumFractionDigits: 1}) : "…";
const link = name => "#service/" + encodeURIComponent(name);

function ago(seconds) {
  if (seconds < 90) return Math.round(seconds) + " s";
  if (seconds < 5400) return Math.round(seconds / 60) + " min";
  return seconds < 172800 ? Math.round(seconds / 3600) + " h" : Math.round(seconds / 86400) + " days";
}

// fail shows why what is shown is old, and since when; without a reason, nothing is old.
function fail(old, reason) {
  const since = answered ? `What you see is from ${answered.toLocaleString("sv-SE")}.` : "Nothing has been shown yet.";
  const text = old ? `${reason} ${since} The page asks again every two seconds.` : "";
  if ($("bar").textContent !== text) $("bar").textContent = text;
  document.body.className = old;
}

// figure is a number with its name. One that needs attention leads to the list, if it says where the attention is needed.
function figure(value, name, bad, leads) {
  const parts = [el("b", {}, value), el("span", {}, name)];
  return el("li", {class: bad ? "bad" : ""}, ...(bad && leads ? [el("a", {href: leads}, ...parts)] : parts));
}

async function showOverview(signal) {
  const o = await ask("overview", {}, signal), now = Date.parse(o.now), waiting = now - Date.parse(o.waitingSince);
  $("node").textContent = "on " + o.node;
  const first = "#services/sort=problems", bad = o.outlierCount, waits = o.waitingServices;
  const since = o.waitingSince ? `, for ${ago(waiting / 1000)}` : "";
  put("figures",
    figure(count(o.problemCount), o.problemCount === 1 ? "problem of an object" : "problems of objects", o.problemCount > 0, first),
    figure(count(bad), bad === 1 ? "endpoint does not answer, or fails a check" : "endpoints do not answer, or fail a check", bad > 0, first),
    figure(count(waits), (waits === 1 ? "Service waits" : "Services wait") + " for the kernel" + since, waiting > 10000),
    figure(count(o.services), o.services === 1 ? "Service" : "Services"),
    figure(rate(o.rates.connectionsPerSecond, o.rates.seconds), "connections/s"),
    figure(rate(o.rates.refusedPerSecond, o.rates.seconds), "refused/s", o.rates.refusedPerSecond > 0),
    figure(count(o.strandedConnections), `open ${o.strandedConnections === 1 ? "connection" : "connections"} from outside to other nodes`),
    ...(o.fastPathConnections === undefined ? [] : [figure(count(o.fastPathConnections), "open on the fast path")]),
    figure(count(o.passes), o.passes === 1 ? "pass" : "passes"));
  const notes = (o.concerns || []).slice(0, 5).map(concern);
  if (o.rates.error) notes.unshift(el("p", {class: "note bad"}, "Rates cannot be read: " + o.rates.error));
  if (o.fastPathIdle) notes.push(el("p", {class: "note"}, o.fastPathIdle));
  if (o.concernCount > 5) notes.push(el("p", {}, el("a", {href: first}, `and ${count(o.concernCount - 5)} more`)));
  put("problems", ...(notes.length ? [el("h2", {}, "To look at"), ...notes] : []));
  const state = `${o.line}. Up ${ago((now - Date.parse(o.started)) / 1000)}, version ${o.version}`;
  if ($("state").textContent !== state) $("state").textContent = state;
  $("state").className = !o.synced || o.lastError || o.drain ? "bad" : "";
  answered = new Date();
}

function concern(c) {
  return el("p", {class: c.urgency > 1 ? "note bad" : "note"}, c.service ? el("a", {href: link(c.object)}, c.object) : el("b", {}, c.object),
    ": " + c.reasons.join("; ") + (c.count > c.reasons.length ? `; and ${count(c.count - c.reasons.length)} more` : ""));
}

function problem(p) { return el("p", {class: "note"}, el("code", {}, `${p.kind} ${p.object} ${p.field}`), ": " + p.reason); }

// wanted is what the list shows. It is a part of the address, so that it survives a reload.
const wanted = () => ({q: $("q").value, sort: $("sort").value, page: pageNumber});
const listAddress = () => "#services/" + new URLSearchParams(Object.entries(wanted()).filter(([, value]) => value && value !== "problems"));

async function showServices(signal) {
  const s = await ask("services", wanted(), signal);
  pageNumber = s.page;
  history.replaceState(null, "", listAddress());
  $("matches").textContent = (s.matches === s.total ? "" : `${count(s.matches)} of `) + count(s.total) + (s.total === 1 ? " Service" : " Services");
  $("page").textContent = `page ${count(s.page + 1)} of ${count(s.pages)}`;
  turnable("previous", s.page > 0, "next");
  turnable("next", s.page + 1 < s.pages, "previous");
  document.querySelector(".pager").hidden = s.pages === 1;
  rows("rows", s.rows.map(r => el("tr", {},
    el("td", {}, el("a", {href: link(r.service), "data-service": r.service}, r.service)),
    el("td", {class: "mono"}, (r.addresses || []).join(", "), el("span", {class: "dim"}, r.ports ? " port\u00a0" + r.ports.join(", ") : "")),
    el("td", {class: r.good ? "n" : "n bad"}, `${count(r.good)} / ${count(r.endpoints)}`,
      r.bad ? el("span", {class: "bad"}, `, ${count(r.bad)} failing`) : null),
    el("td", {class: "n"}, rate(r.connectionsPerSecond, s.seconds)),
    el("td", {class: r.refusedPerSecond ? "n bad" : "n"}, rate(r.refusedPerSecond, s.seconds)),
    el("td", {class: "n"}, count(r.connectionsTotal)),
    el("td", {class: r.problems ? "n warn" : "n"}, count(r.problems)))),
    s.total ? "No Service has all these words in its name, or as an address or a port." : "There is no Service.");
  returning = "";
}

// turnable lets a button be used or not. The focus goes to the other button if this one loses it.
function turnable(id, can, other) {
  const focused = document.activeElement === $(id);
  $(id).disabled = !can;
  if (focused && !can) { $(other).disabled = false; $(other).focus(); }
}

async function showService(signal) {
  const s = await ask("service", {name: selected}, signal), troubled = new Map();
  put("service-title", s.service + " ",
    el("a", {href: "#explain/" + encodeURIComponent(s.service)}, "explain"));
  for (const e of s.endpoints) if (e.bad) troubled.set(e.endpoint, e.remark);
  const notes = (s.problems || []).map(problem);
  if (s.unsure) notes.push(el("p", {class: "note"}, "A change of this Service waits, or the latest pass failed: the kernel may have something else."));
  if (s.moreFrontends) notes.push(el("p", {class: "note"}, `${s.moreFrontends} more frontends are not shown: verdict list ${s.service}`));
  const kept = s.kernel.frontends.filter(f => f.onRules).map(f => `${f.service} stays on the rules: ${f.onRules}`);
  notes.push(...[...new Set(kept)].map(text => el("p", {class: "note"}, text)));
  put("service-notes", ...notes);
  $("fast-path").hidden = !s.fastPathConnections;
  put("picture", Draw.service(s.kernel, troubled, $("picture").clientWidth));
  rows("loads", s.loads.sort((a, b) => a.service < b.service ? -1 : 1).map(l => el("tr", {}, el("td", {}, l.service),
    el("td", {class: "n"}, rate(l.connectionsPerSecond, s.seconds)), el("td", {class: "n"}, rate(l.refusedPerSecond, s.seconds)),
    el("td", {class: "n"}, count(l.connectionsTotal)),
    ...(s.fastPathConnections ? [el("td", {class: "n"}, count(s.fastPathConnections[l.service] || 0))] : []))), "The kernel counts no connections of this Service.");
  const local = s.kernel.frontends.some(f => f.local);
  rows("endpoints", s.endpoints.map(e => el("tr", {}, el("td", {class: "mono"}, e.endpoint),
    el("td", {}, e.port.split(":")[1] || e.port), el("td", {}, e.node || ""), el("td", {class: endpointClass(e)}, endpointState(e, local)))),
    "Its slices have no endpoint.");
  $("more-endpoints").textContent = s.moreEndpoints ? `and ${count(s.moreEndpoints)} more: verdict list ${s.service}` : "";
}

function endpointClass(e) { return e.bad ? "bad" : e.noNewConnections || e.leftOutOfCluster ? "warn" : "good"; }

function endpointState(e, local) {
  if (e.remark) return e.remark;
  if (e.leftOutOfCluster) return "left out: " + e.leftOutOfCluster;
  return e.leftOutOfLocal && local ? `takes connections; with policy Local it is left out: ${e.leftOutOfLocal}` : "takes connections";
}

async function showChanges(signal) {
  const passes = await ask("passes", {}, signal);
  put("plot", Draw.plot(passes, Date.now(), $("plot").clientWidth));
  const list = [];
  for (const p of passes.slice(0, 40)) {
    const toggle = () => { open = open === p.number ? 0 : p.number; refresh(); };
    list.push(el("tr", {},
      el("td", {}, el("button", {type: "button", class: "link", id: "pass-" + p.number, "aria-expanded": String(open === p.number), onclick: toggle}, String(p.number))),
      el("td", {class: "time"}, new Date(p.started).toLocaleTimeString("en-GB")), el("td", {class: "n"}, count(p.services)),
      el("td", {class: "n"}, `+${count(p.elementsAdded)} −${count(p.elementsDeleted)}`), el("td", {class: "n"}, count(p.virtualServerOperations)),
      el("td", {class: "n"}, p.changeSeconds ? Draw.duration(p.changeSeconds) : "–"), el("td", {class: "n"}, Draw.duration(p.seconds)),
      el("td", {class: "n"}, Draw.duration(p.kernelSeconds)),
      el("td", {class: p.error ? "bad" : ""}, (p.error || p.outcome) + (p.wroteEverything ? ", wrote everything" : ""))));
    if (open === p.number) list.push(el("tr", {}, el("td", {colspan: 9}, await changesOf(p, signal))));
  }
  rows("passes", list, "The kernel has got nothing yet.");
}

async function changesOf(p, signal) {
  const c = await ask("changes", {pass: p.number}, signal), lines = c.changes || [];
  const rest = p.elementsAdded + p.elementsDeleted + (p.virtualServerOperations || 0) - lines.length;
  if (lines.length === 0) return el("p", {class: "dim"}, "This pass changed nothing in the kernel.");
  return el("pre", {class: "changes"}, lines.join("\n") + (rest > 0 ? `\n… and ${count(rest)} more` : ""));
}

async function explainNow() {
  $("answer").setAttribute("aria-busy", "true");
  try {
    const list = await ask("explain", {source: $("source").value.trim(), destination: $("destination").value.trim()});
    $("answer").replaceChildren(...list.map(explanation));
  } catch (e) {
    $("answer").replaceChildren(el("p", {class: "note bad"}, reason(e)));
  }
  $("answer").removeAttribute("aria-busy");
}

function explanation(x) {
  const steps = x.steps.flatMap(s => [el("dt", {}, s.topic), el("dd", {}, s.text,
    (s.evidence || []).length ? el("pre", {}, s.evidence.join("\n")) : null)]);
  const kind = {served: "good", refused: "bad", dropped: "bad"}[x.verdict.outcome] || "warn";
  return el("dl", {class: "steps"}, ...steps, el("dt", {}, "verdict"), el("dd", {class: "verdict " + kind}, x.verdict.text),
    ...(x.notes || []).flatMap(n => [el("dt", {}, "note"), el("dd", {class: "dim"}, n)]));
}

async function refresh() {
  if (asking) asking.abort();
  const mine = asking = new AbortController();
  let old = "lost"; // the figures, too
  try {
    await showOverview(mine.signal);
    old = "stale"; // only what is below them
    const show = {services: showServices, service: showService, changes: showChanges}[view];
    if (show) await show(mine.signal);
    fail("");
  } catch (e) {
    if (e.name !== "AbortError") fail(old, reason(e));
  }
  if (asking === mine) asking = null;
}

// route shows what the address asks for. The focus follows: to the title of the view, or back to the Service in the list.
function route() {
  const [name, argument] = location.hash.slice(1).split("/", 2), before = view;
  const known = ["services", "service", "changes", "explain"];
  view = known.includes(name) ? name : "services";
  if (view === "services") {
    clearTimeout(typing); // the address counts, and not what was typed before
    const list = new URLSearchParams(argument);
    $("q").value = list.get("q") || "";
    $("sort").value = list.get("sort") || "problems";
    pageNumber = Number(list.get("page")) || 0;
    returning = before === "service" ? link(selected) : "";
  }
  if (view === "service") {
    selected = decodeURIComponent(argument || "");
    put("service-title", selected);
    for (const id of ["service-notes", "picture", "loads", "endpoints"]) put(id); // they may be those of another Service
  }
  if (view === "explain" && argument) $("destination").value = decodeURIComponent(argument);
  for (const id of known) $("view-" + id).hidden = id !== view;
  for (const a of document.querySelectorAll("nav a")) {
    if (a.dataset.view === view || view === "service" && a.dataset.view === "services") a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
    if (a.dataset.view === "services") a.href = listAddress();
  }
  document.title = "Verdict: " + (view === "service" ? selected : view);
  if (before) $(view + "-title").focus();
  refresh();
}

function list() { pageNumber = 0; refresh(); }

let typing = 0;
$("skip").addEventListener("click", e => { e.preventDefault(); $("main").focus(); });
$("q").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(list, 150); });
$("search").addEventListener("submit", e => { e.preventDefault(); refresh(); });
$("sort").addEventListener("change", list);
$("previous").addEventListener("click", () => { pageNumber--; refresh(); });
$("next").addEventListener("click", () => { pageNumber++; refresh(); });
$("ask").addEventListener("submit", e => { e.preventDefault(); explainNow(); });
window.addEventListener("hashchange", route);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
setInterval(() => { if (!document.hidden && !asking) refresh(); }, period);
route();
