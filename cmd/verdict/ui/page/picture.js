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

  function canvas(width, height, title) {
    const svg = node("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title});
    svg.append(node("title", {}, title));
    return svg;
  }

  function cut(text, most) { return text.length > most ? text.slice(0, most - 1) + "…" : text; }

  function box(svg, x, y, width, lines, bad) {
    svg.append(node("rect", {x, y, width, height: boxHeight, rx: 6, class: bad ? "box badbox" : "box"}));
    lines.forEach(([text, kind], i) =>
      svg.append(node("text", {x: x + 9, y: y + 17 + 16 * i, class: kind || ""}, cut(text, Math.floor(width / 6.6)))));
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

  // service draws frontends at the left, pools in the middle and endpoints at the right.
  function service(table, troubled) {
    const pools = poolsOf(table.frontends);
    let y = 8;
    const rows = pools.map(p => {
      const ends = p.endpoints.slice(0, mostDrawn), more = p.endpoints.length - ends.length;
      const count = Math.max(p.frontends.length, ends.length + (more > 0 ? 1 : 0), 1);
      const top = y;
      y += count * rowHeight + 10;
      return {p, ends, more, top, count};
    });
    const svg = canvas(1000, Math.max(y, 60), `${table.frontends.length} frontends, ${pools.length} pools`);
    const center = (r, count, i) => r.top + (r.count - count) * rowHeight / 2 + i * rowHeight + boxHeight / 2;
    const line = (x1, y1, x2, y2, width) => svg.append(node("path", {
      d: `M${x1} ${y1} C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`, class: "link", "stroke-width": width,
    }));
    for (const r of rows) {
      const middle = center(r, 1, 0), slots = r.p.endpoints.reduce((n, e) => n + e.weight, 0) || 1;
      const count = r.ends.length + (r.more > 0 ? 1 : 0);
      r.p.frontends.forEach((f, i) => {
        const y = center(r, r.p.frontends.length, i);
        line(300, y, 385, middle, 1.5);
        box(svg, 0, y - boxHeight / 2, 300, [[at(f.address, f.port) + " " + f.protocol],
          [(f.service || "").split(":")[1] + (f.sourceRanges ? ", source ranges" : ""), "dim"]]);
      });
      r.ends.forEach((e, i) => {
        const y = center(r, count, i), name = at(e.address, e.port), trouble = troubled.get(name);
        line(605, middle, 690, y, 1 + 5 * e.weight / slots);
        box(svg, 690, y - boxHeight / 2, 300,
          [[name], [trouble || `weight ${e.weight} of ${slots} (${(100 * e.weight / slots).toFixed(0)} %)`, trouble ? "bad" : "dim"]], trouble);
      });
      if (r.more > 0) svg.append(node("text", {x: 700, y: center(r, count, count - 1) + 4, class: "dim"}, `and ${r.more} more`));
      box(svg, 385, middle - boxHeight / 2, 220, poolLines(r.p), r.p.endpoints.length === 0);
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
  function plot(passes, now) {
    const width = 1000, height = 230, left = 64, right = 16, top = 10, bottom = 26;
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
    for (let i = 0; i <= 4; i++) {
      const t = first + (last - first) * i / 4;
      svg.append(node("text", {x: x(t), y: height - 6, class: "dim", "text-anchor": ["start", "middle", "middle", "middle", "end"][i]},
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
