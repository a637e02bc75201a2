"use strict";
// Drawings: the picture of a Service and the plot of change latency. Nothing here asks the server.
const Draw = (() => {
  const space = "http://www.w3.org/2000/svg";

  function node(name, attributes, ...children) {
    const e = document.createElementNS(space, name);
    for (const [key, value] of Object.entries(attributes || {})) e.setAttribute(key, value);
    for (const child of children) e.append(child);
    return e;
  }

  // canvas is as wide as the window has room for, so that texts always have the same size.
  function canvas(width, height, title) {
    const svg = node("svg", {width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title});
    svg.append(node("title", {}, title));
    return svg;
  }

  function cut(text, most) { return text.length > most ? text.slice(0, most - 1) + "…" : text; }

  function box(svg, x, y, width, lines, bad) {
    svg.append(node("rect", {x, y, width, height: boxHeight, rx: 6, class: bad ? "box badbox" : "box"}));
    lines.forEach(([text, kind], i) =>
      svg.append(node("text", {x: x + 9, y: y + 17 + 16 * i, class: kind || ""}, cut(text, Math.floor((width - 12) / 7.4)))));
  }

  const boxHeight = 44, rowHeight = 54;

  // at is ADDRESS:PORT; without an address it is a node port.
  function at(address, port) {
    if (!address) return "node port " + port;
    return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
  }

  // poolsOf groups frontends that lead to the same endpoints in the same way.
  function poolsOf(frontends) {
    const pools = new Map();
    for (const f of frontends) {
      const takes = f.endpoints.filter(e => e.weight > 0 || e.weightForPodsAndNode > 0);
      const key = JSON.stringify([f.engine, f.scheduler, f.affinitySeconds, f.local, f.refusal, f.service,
        takes.map(e => [e.address, e.port, e.weight])]);
      if (!pools.has(key)) pools.set(key, {first: f, frontends: [], endpoints: takes});
      pools.get(key).frontends.push(f);
    }
    return [...pools.values()];
  }

  const mostDrawn = 12; // endpoints of a pool

  function poolLines(p) {
    const f = p.first;
    if (p.endpoints.length === 0) return [["no endpoint", "bad"], [f.refusal || f.engine, "dim"]];
    const words = [f.engine];
    if (f.affinitySeconds) words.push(`affinity ${f.affinitySeconds} s`);
    if (f.local) words.push("policy Local");
    return [[`${f.scheduler || "random"}, ${p.endpoints.length} of them`], [words.join(", "), "dim"]];
  }

  // service draws frontends at the left, pools in the middle and endpoints at the right; where there is no room for that, each
  // pool and its endpoints below its frontends.
  function service(table, troubled, room) {
    const wide = room >= 900, width = Math.min(room, 1200), step = wide ? 0 : 16;
    const side = wide ? 0.35 * width : width, pool = wide ? 0.2 * width : width - step, end = wide ? side : width - 2 * step;
    const poolAt = wide ? (width - pool) / 2 : step, endAt = wide ? width - end - 1 : 2 * step - 1;
    const pools = poolsOf(table.frontends);
    let y = 8;
    const rows = pools.map(p => {
      const ends = p.endpoints.slice(0, mostDrawn), more = p.endpoints.length - ends.length;
      const below = ends.length + (more > 0 ? 1 : 0);
      const count = wide ? Math.max(p.frontends.length, below, 1) : p.frontends.length + 1 + below;
      const top = y;
      y += count * rowHeight + 10;
      return {p, ends, more, top, count, below};
    });
    const svg = canvas(width, Math.max(y, 60), `${table.frontends.length} frontends, ${pools.length} pools`);
    // center is the middle of box i of n; before counts the boxes above, where all are in one column.
    const center = (r, n, i, before) => r.top + (wide ? (r.count - n) / 2 + i : before + i) * rowHeight + boxHeight / 2;
    const line = (x1, y1, x2, y2, thick) => svg.append(node("path", {class: "link", "stroke-width": thick, d: wide
      ? `M${x1} ${y1} C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}` : `M${x2 - step / 2} ${y1} V${y2} H${x2}`}));
    for (const r of rows) {
      const middle = center(r, 1, 0, r.p.frontends.length), slots = r.p.endpoints.reduce((n, e) => n + e.weight, 0) || 1;
      r.p.frontends.forEach((f, i) => {
        const y = center(r, r.p.frontends.length, i, 0);
        line(side, y, poolAt, middle, 1.5);
        box(svg, 1, y - boxHeight / 2, side - 2, [[at(f.address, f.port) + " " + f.protocol],
          [(f.service || "").split(":")[1] + (f.sourceRanges ? ", source ranges" : ""), "dim"]]);
      });
      r.ends.forEach((e, i) => {
        const y = center(r, r.below, i, r.p.frontends.length + 1), name = at(e.address, e.port), trouble = troubled.get(name);
        line(poolAt + pool, middle, endAt, y, 1 + 5 * e.weight / slots);
        box(svg, endAt, y - boxHeight / 2, end,
          [[name], [trouble || `weight ${e.weight} of ${slots} (${(100 * e.weight / slots).toFixed(0)} %)`, trouble ? "bad" : "dim"]], trouble);
      });
      if (r.more > 0) {
        svg.append(node("text", {x: endAt + 10, y: center(r, r.below, r.below - 1, r.p.frontends.length + 1) + 4, class: "dim"}, `and ${r.more} more`));
      }
      box(svg, poolAt, middle - boxHeight / 2, pool - 1, poolLines(r.p), r.p.endpoints.length === 0);
    }
    if (rows.length === 0) svg.append(node("text", {x: 10, y: 30, class: "bad"}, "The kernel has no frontend of this Service."));
    return svg;
  }

  // duration prints seconds.
  function duration(s) {
    if (s >= 1) return s.toPrecision(3) + " s";
    if (s >= 0.001) return (1000 * s).toPrecision(3) + " ms";
    return (1e6 * s).toFixed(0) + " µs";
  }

  // plot draws change latency over time.
  function plot(passes, now, room) {
    const width = Math.min(room, 1200), height = 230, left = 64, right = 16, top = 10, bottom = 26;
    const points = passes.filter(p => p.changeSeconds > 0 || p.error)
      .map(p => ({at: Date.parse(p.started), value: p.changeSeconds || p.seconds, pass: p}));
    const svg = canvas(width, height, `change latency of ${points.length} passes`);
    if (points.length === 0) {
      svg.append(node("text", {x: left, y: 60, class: "dim"}, "No change has come since the daemon started."));
      return svg;
    }
    const first = Math.min(...points.map(p => p.at)), last = Math.max(now, first + 1000);
    const low = Math.floor(Math.log10(Math.min(...points.map(p => p.value))));
    const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...points.map(p => p.value)))));
    const x = t => left + (width - left - right) * (t - first) / (last - first);
    const y = v => height - bottom - (height - top - bottom) * (Math.log10(v) - low) / (high - low);
    for (let e = low; e <= high; e++) {
      const v = Math.pow(10, e);
      svg.append(node("line", {x1: left, x2: width - right, y1: y(v), y2: y(v), class: "grid"}));
      svg.append(node("text", {x: left - 8, y: y(v) + 4, class: "dim", "text-anchor": "end"}, duration(v).replace(/\.0+/, "")));
    }
    const marks = width < 500 ? 2 : 4;
    for (let i = 0; i <= marks; i++) {
      const t = first + (last - first) * i / marks;
      svg.append(node("text", {x: x(t), y: height - 6, class: "dim", "text-anchor": i === 0 ? "start" : i === marks ? "end" : "middle"},
        new Date(t).toLocaleTimeString("en-GB")));
    }
    for (const p of points) {
      svg.append(node("circle", {cx: x(p.at), cy: y(p.value), r: 3.2, class: p.pass.error ? "point bad" : "point"},
        node("title", {}, `pass ${p.pass.number}: ${duration(p.value)}${p.pass.error ? ", failed" : ""}`)));
    }
    return svg;
  }

  return {service, plot, duration, at};
})();
