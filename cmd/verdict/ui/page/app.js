"use strict";
// The page asks the daemon every two seconds for what it shows. It asks nothing while nobody looks.
const $ = id => document.getElementById(id);
const period = 2000;
let view = "services", selected = "", pageNumber = 0, open = 0, asking = null;

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

async function ask(path, query, signal) {
  const r = await fetch("api/" + path + "?" + new URLSearchParams(query || {}), {signal});
  const value = await r.json();
  if (!r.ok) throw new Error(value.error || r.statusText);
  return value;
}

const count = n => (n || 0).toLocaleString("en-US");
const rate = (value, seconds) => seconds ? (value || 0).toLocaleString("en-US", {minimumFractionDigits: 1, maximumFractionDigits: 1}) : "…";
const link = name => "#service/" + encodeURIComponent(name);

function ago(seconds) {
  if (seconds < 90) return Math.round(seconds) + " s";
  if (seconds < 5400) return Math.round(seconds / 60) + " min";
  return seconds < 172800 ? Math.round(seconds / 3600) + " h" : Math.round(seconds / 86400) + " days";
}

function say(text, bad) {
  if ($("state").textContent !== text) $("state").textContent = text;
  $("state").className = bad ? "bad" : "";
}

function figure(value, name, bad) { return el("li", {class: bad ? "bad" : ""}, el("b", {}, value), el("span", {}, name)); }

async function showOverview(signal) {
  const o = await ask("overview", {}, signal), now = Date.parse(o.now);
  $("node").textContent = "on " + o.node;
  const waits = o.waitingSince ? `, for ${ago((now - Date.parse(o.waitingSince)) / 1000)}` : "";
  $("figures").replaceChildren(
    figure(count(o.services), "Services"),
    figure(rate(o.rates.connectionsPerSecond, o.rates.seconds), "connections/s"),
    figure(rate(o.rates.refusedPerSecond, o.rates.seconds), "refused/s", o.rates.refusedPerSecond > 0),
    figure(count(o.strandedConnections), "open connections from outside to other nodes"),
    figure(count(o.waitingServices), "Services wait for the kernel" + waits, o.waitingServices > 0 && now - Date.parse(o.waitingSince) > 10000),
    figure(count(o.passes), "passes"),
    figure(count(o.problemCount), "parts not honored", o.problemCount > 0),
    figure(count(o.outlierCount), "endpoints do not answer, or fail a check", o.outlierCount > 0));
  const notes = [];
  if (o.lastError) notes.push(el("p", {class: "note bad"}, "The latest pass failed: " + o.lastError));
  if (o.rates.error) notes.push(el("p", {class: "note bad"}, "Rates cannot be read: " + o.rates.error));
  for (const p of o.problems.slice(0, 5)) notes.push(problem(p));
  if (o.problemCount > 5) notes.push(el("p", {class: "dim"}, `and ${count(o.problemCount - 5)} more; order the list by problems to find them`));
  for (const e of o.outliers.slice(0, 5)) {
    notes.push(el("p", {class: "note"}, `${e.endpoint} of ${e.services.join(", ")}: ${e.text}`));
  }
  $("problems").replaceChildren(...(notes.length ? [el("h3", {}, "To look at"), ...notes] : []));
  say(o.synced ? `up ${ago((now - Date.parse(o.started)) / 1000)}, version ${o.version}` : "waiting for the first lists of objects", !o.synced);
}

function problem(p) { return el("p", {class: "note"}, el("code", {}, `${p.kind} ${p.object} ${p.field}`), ": " + p.reason); }

async function showServices(signal) {
  const s = await ask("services", {q: $("q").value, sort: $("sort").value, page: pageNumber}, signal);
  pageNumber = s.page;
  $("matches").textContent = s.matches === s.total ? `${count(s.total)} Services` : `${count(s.matches)} of ${count(s.total)} Services`;
  $("page").textContent = `page ${count(s.page + 1)} of ${count(s.pages)}`;
  $("previous").disabled = s.page === 0;
  $("next").disabled = s.page + 1 >= s.pages;
  const focused = document.activeElement && document.activeElement.dataset.service;
  $("rows").replaceChildren(...s.rows.map(r => el("tr", {},
    el("td", {}, el("a", {href: link(r.service), "data-service": r.service}, r.service)),
    el("td", {class: "mono"}, (r.addresses || []).join(", ")),
    el("td", {class: r.ready ? "n" : "n bad"}, `${count(r.ready)} / ${count(r.endpoints)}`),
    el("td", {class: "n"}, rate(r.connectionsPerSecond, s.seconds)),
    el("td", {class: r.refusedPerSecond ? "n bad" : "n"}, rate(r.refusedPerSecond, s.seconds)),
    el("td", {class: "n"}, count(r.connectionsTotal)),
    el("td", {class: r.problems ? "n warn" : "n"}, count(r.problems)))));
  if (s.rows.length === 0) $("rows").append(el("tr", {}, el("td", {colspan: 7, class: "dim"}, "No Service has all these words in its name.")));
  if (focused) for (const a of $("rows").querySelectorAll("a")) if (a.dataset.service === focused) a.focus();
}

async function showService(signal) {
  const s = await ask("service", {name: selected}, signal), troubled = new Map();
  $("service-title").replaceChildren(s.service + " ",
    el("a", {class: "mono", href: "#explain/" + encodeURIComponent(s.service)}, "explain"));
  for (const e of s.endpoints) if (e.bad) troubled.set(e.endpoint, e.remark);
  const notes = (s.problems || []).map(problem);
  if (s.unsure) notes.push(el("p", {class: "note"}, "A change of this Service waits, or the latest pass failed: the kernel may have something else."));
  if (s.moreFrontends) notes.push(el("p", {class: "note"}, `${s.moreFrontends} more frontends are not shown: verdict list ${s.service}`));
  $("service-notes").replaceChildren(...notes);
  $("picture").replaceChildren(Draw.service(s.kernel, troubled));
  $("loads").replaceChildren(...s.loads.sort((a, b) => a.service < b.service ? -1 : 1).map(l => el("tr", {}, el("td", {}, l.service),
    el("td", {class: "n"}, rate(l.connectionsPerSecond, s.seconds)), el("td", {class: "n"}, rate(l.refusedPerSecond, s.seconds)),
    el("td", {class: "n"}, count(l.connectionsTotal)))));
  $("endpoints").replaceChildren(...s.endpoints.map(e => el("tr", {}, el("td", {class: "mono"}, e.endpoint),
    el("td", {}, e.port.split(":")[1] || e.port), el("td", {}, e.node || ""), el("td", {class: endpointClass(e)}, endpointState(e)))));
  $("more-endpoints").textContent = s.moreEndpoints ? `and ${count(s.moreEndpoints)} more: verdict list ${s.service}` : "";
}

function endpointClass(e) { return e.bad ? "bad" : e.noNewConnections || e.leftOutOfCluster ? "warn" : "good"; }

function endpointState(e) {
  if (e.remark) return e.remark;
  if (e.leftOutOfCluster) return "left out: " + e.leftOutOfCluster;
  return e.leftOutOfLocal ? `takes connections; with policy Local it is left out: ${e.leftOutOfLocal}` : "takes connections";
}

async function showChanges(signal) {
  const passes = await ask("passes", {}, signal);
  $("plot").replaceChildren(Draw.plot(passes, Date.now()));
  const rows = [];
  for (const p of passes.slice(0, 40)) {
    const toggle = () => { open = open === p.number ? 0 : p.number; refresh(); };
    rows.push(el("tr", {},
      el("td", {}, el("button", {type: "button", class: "link", "data-pass": p.number, "aria-expanded": String(open === p.number), onclick: toggle}, String(p.number))),
      el("td", {class: "time"}, new Date(p.started).toLocaleTimeString("en-GB")), el("td", {class: "n"}, count(p.services)),
      el("td", {class: "n"}, `+${count(p.elementsAdded)} −${count(p.elementsDeleted)}`), el("td", {class: "n"}, count(p.virtualServerOperations)),
      el("td", {class: "n"}, p.changeSeconds ? Draw.duration(p.changeSeconds) : "–"), el("td", {class: "n"}, Draw.duration(p.seconds)),
      el("td", {class: "n"}, Draw.duration(p.kernelSeconds)),
      el("td", {class: p.error ? "bad" : ""}, (p.error || p.outcome) + (p.wroteEverything ? ", wrote everything" : ""))));
    if (open === p.number) rows.push(el("tr", {}, el("td", {colspan: 9}, await changesOf(p, signal))));
  }
  const focused = document.activeElement && document.activeElement.dataset.pass;
  $("passes").replaceChildren(...rows);
  if (focused) for (const b of $("passes").querySelectorAll("button")) if (b.dataset.pass === focused) b.focus();
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
    $("answer").replaceChildren(el("p", {class: "note bad"}, e.message));
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
  try {
    await showOverview(mine.signal);
    const show = {services: showServices, service: showService, changes: showChanges}[view];
    if (show) await show(mine.signal);
  } catch (e) {
    if (e.name !== "AbortError") say(e instanceof TypeError ? "The daemon does not answer." : e.message, true);
  }
  if (asking === mine) asking = null;
}

function route() {
  const [name, argument] = location.hash.slice(1).split("/", 2);
  const known = ["services", "service", "changes", "explain"];
  view = known.includes(name) ? name : "services";
  if (view === "service") selected = decodeURIComponent(argument || "");
  if (view === "explain" && argument) $("destination").value = decodeURIComponent(argument);
  for (const id of known) $("view-" + id).hidden = id !== view;
  for (const a of document.querySelectorAll("nav a")) {
    if (a.dataset.view === view || view === "service" && a.dataset.view === "services") a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  document.title = "Verdict: " + (view === "service" ? selected : view);
  refresh();
}

let typing = 0;
$("q").addEventListener("input", () => { pageNumber = 0; clearTimeout(typing); typing = setTimeout(refresh, 150); });
$("search").addEventListener("submit", e => { e.preventDefault(); refresh(); });
$("sort").addEventListener("change", () => { pageNumber = 0; refresh(); });
$("previous").addEventListener("click", () => { pageNumber--; refresh(); });
$("next").addEventListener("click", () => { pageNumber++; refresh(); });
$("ask").addEventListener("submit", e => { e.preventDefault(); explainNow(); });
window.addEventListener("hashchange", route);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
setInterval(() => { if (!document.hidden && !asking) refresh(); }, period);
route();
