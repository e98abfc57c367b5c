// What can be done on a page: look around in the chart and the strip of layers, sort and filter
// tables, list layers, copy what is to be typed. All text of a model goes through textContent.
// Nothing is stored or fetched.
"use strict";
(() => {
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const HIGHER = new Set(["float32", "float16", "int16"]);
  const SHOWN_LAYERS = 4;

  function make(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    return filled(node, attributes, children);
  }

  function draw(name, attributes = {}, ...children) {
    return filled(document.createElementNS(SVG, name), attributes, children);
  }

  function filled(node, attributes, children) {
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children); // Strings become text, never markup.
    return node;
  }

  // ---- what is looked at ----

  // Chart, strip and table mark the candidate that a person points at in any of them.
  const watchers = [];
  let looked = null;
  function look(candidate) {
    if (candidate === looked) return;
    looked = candidate;
    watchers.forEach((each) => each(candidate));
  }

  // Beside a place within its figure, and never out of the screen.
  function place(tip, figure, left, top) {
    tip.hidden = false;
    const room = figure.clientWidth;
    const right = left + 18 + tip.offsetWidth <= room;
    const beside = right || left - 18 - tip.offsetWidth >= 0;
    const wanted = right ? left + 18 : left - 18 - tip.offsetWidth;
    tip.style.left = `${clamp(wanted, 0, Math.max(0, room - tip.offsetWidth))}px`;
    tip.style.top = `${Math.max(0, beside ? top - tip.offsetHeight / 2 : top + 20)}px`;
  }

  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  // ---- layers ----

  const precisionOf = (candidate, at) => DATA.layers?.[candidate]?.[at] ?? "-";
  const numberOf = (sign) => parseInt(sign, 36);

  // The layers of a candidate by precision, the highest first: a sign for each name says which.
  function layersOf(candidate) {
    const groups = new Map();
    [...(DATA.layers?.[candidate] ?? "")].forEach((sign, at) => {
      if (sign === "-") return;
      if (!groups.has(sign)) groups.set(sign, []);
      groups.get(sign).push(DATA.names[at]);
    });
    const sorted = [...groups].sort(([a], [b]) => numberOf(b) - numberOf(a));
    return new Map(sorted.map(([sign, names]) => [DATA.precisions[numberOf(sign)], names]));
  }

  function leftInFloat(candidate) {
    return [...layersOf(candidate)].filter(([kind]) => HIGHER.has(kind)).flatMap(([, names]) => names);
  }

  // The names go into a row of their own, so that no column moves.
  function listLayers(button, row) {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    if (open) {
      row.nextElementSibling.remove();
      return;
    }
    const list = make("dl");
    for (const [precision, names] of layersOf(row.dataset.layers)) {
      list.append(make("dt", {}, `${precision}, ${names.length}`), make("dd", {}, names.join(", ")));
    }
    row.after(make("tr", { class: "listed" }, make("td", { colspan: row.cells.length }, list)));
  }

  function foldAll(body) {
    body.querySelectorAll("tr.listed").forEach((each) => each.remove());
    body.querySelectorAll("button.layers").forEach((each) => each.setAttribute("aria-expanded", "false"));
  }

  // ---- tables ----

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    const value = (row, column) => {
      const cell = row.cells[column];
      const text = cell.textContent.trim();
      return cell.dataset.v === undefined ? text || null : Number(cell.dataset.v);
    };
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        foldAll(body);
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows].map((row) => [value(row, column), row]);
        // What has no number comes last either way.
        rows.sort(([a], [b]) =>
          a === null || b === null ? (a === null) - (b === null) : (down ? -1 : 1) * compare(a, b));
        body.append(...rows.map(([, row]) => row));
      });
    });
  }

  function filterable(table) {
    const layer = document.getElementById("layer");
    const front = document.getElementById("only-front");
    const shown = document.getElementById("shown");
    const rows = [...table.tBodies[0].rows];
    const names = new Map(rows.map((row) => [row, leftInFloat(row.dataset.layers).map((n) => n.toLowerCase())]));
    const update = () => {
      foldAll(table.tBodies[0]);
      const text = layer.value.trim().toLowerCase();
      for (const row of rows) {
        const named = !text || names.get(row).some((name) => name.includes(text));
        row.hidden = !named || (front.checked && !row.classList.contains("front"));
      }
      shown.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} shown`;
    };
    layer.addEventListener("input", update);
    front.addEventListener("change", update);
    update();
    for (const row of rows) {
      const button = row.querySelector("button.layers");
      button?.addEventListener("click", () => listLayers(button, row));
      row.addEventListener("pointerenter", () => look(row.dataset.layers));
      row.addEventListener("pointerleave", () => look(null));
    }
    watchers.push((candidate) => rows.forEach((row) => row.classList.toggle("on", row.dataset.layers === candidate)));
  }

  // ---- what is to be typed ----

  function copyable(pre) {
    const button = make("button", { type: "button", class: "copy" }, "copy");
    const box = make("div", { class: "code" });
    pre.replaceWith(box);
    box.append(pre, button);
    button.addEventListener("click", async () => {
      const done = await copied(pre);
      button.textContent = done ? "copied" : "press Ctrl+C";
      setTimeout(() => { button.textContent = "copy"; }, 2000);
    });
  }

  async function copied(pre) {
    try {
      await navigator.clipboard.writeText(pre.textContent);
      return true;
    } catch {
      // MLflow's viewer and some browsers allow only this old way.
      const range = document.createRange();
      range.selectNodeContents(pre);
      const selection = getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      return document.execCommand("copy");
    }
  }

  // ---- strip ----

  // The colour of a precision: coded weights are the stronger, the finer their steps are.
  function paint(number) {
    const name = DATA.families[number];
    const kin = DATA.families.map((each, at) => [each, at]).filter(([each]) => each === name);
    const share = kin.length > 1 ? 0.3 + (0.7 * kin.findIndex(([, at]) => at === number)) / (kin.length - 1) : 1;
    return { fill: `var(--${name})`, "fill-opacity": share.toFixed(2) };
  }

  function strip(figure, info) {
    const cells = figure.querySelector(".cells");
    const tip = figure.querySelector(".tip");
    const names = DATA.names;
    const count = names.length;
    const harms = info.facts.some((each) => each);
    let groups = [];
    let spot = null; // Row and column that the keys moved to.
    if (!count || !info.rows.length) {
      figure.hidden = true;
      return;
    }
    legend(figure.querySelector(".key"));

    function render() {
      const width = Math.max(280, cells.clientWidth);
      const narrow = width < 560;
      const left = narrow ? 62 : 190;
      const high = info.rows.length > 40 ? 10 : info.rows.length > 20 ? 14 : 20;
      const top = harms ? 22 : 0;
      const height = top + info.rows.length * high + 20;
      const step = (width - left - 2) / count;
      const X = (at) => left + at * step;
      const svg = draw("svg", { viewBox: `0 0 ${width} ${height}` });
      const column = draw("rect", { class: "column", visibility: "hidden" });
      if (harms) {
        svg.append(draw("text", { x: 0, y: 12 }, "harm"));
        info.facts.forEach((fact, at) => {
          if (fact) svg.append(draw("rect", { x: X(at), y: 0, width: step + 0.3, height: 16, fill: "var(--warn)", "fill-opacity": fact.harm }));
        });
      }
      groups = info.rows.map((row, at) => {
        const y = top + at * high;
        const words = row.aliases.join(", ") || (row.front ? "front" : "");
        const label = narrow ? `#${row.candidate}` : `#${row.candidate} ${words}`;
        const group = draw("g", {
          class: "row", tabindex: at ? "-1" : "0", role: "img",
          "aria-label": `#${row.candidate} ${words}: ${summed(row.candidate)}`,
        }, draw("text", { x: 0, y: y + high - (high < 14 ? 1 : 5), class: row.front ? "front" : "", style: high < 14 ? "font-size:9px" : "" }, label));
        for (const [from, to, number] of runs(row.candidate)) {
          group.append(draw("rect", { x: X(from), y, width: (to - from) * step + 0.2, height: high - 2, ...paint(number) }));
        }
        group.append(draw("rect", { class: "frame", x: left - 1, y: y - 1, width: count * step + 2, height: high }));
        if (looked === row.candidate) group.classList.add("on");
        svg.append(group);
        group.addEventListener("focus", () => show(at, spot?.column ?? 0));
        return group;
      });
      svg.append(column);
      svg.append(draw("text", { x: left, y: height - 5 }, "input"));
      svg.append(draw("text", { x: width - 2, y: height - 5, "text-anchor": "end" }, `output, ${count} layers`));
      cells.replaceChildren(svg);

      function show(row, at) {
        spot = { row, column: at };
        const y = top + row * high;
        for (const [name, value] of Object.entries({ x: X(at), y: 0, width: Math.max(step, 1), height: height - 20, visibility: "visible" })) column.setAttribute(name, value);
        tip.replaceChildren(...told(info.rows[row], at));
        const scale = svg.getBoundingClientRect().width / width;
        place(tip, figure, X(at + 0.5) * scale, cells.offsetTop + (y + high) * scale);
        look(info.rows[row].candidate);
      }

      function hide() {
        column.setAttribute("visibility", "hidden");
        tip.hidden = true;
        look(null);
      }

      function near(event) {
        const frame = svg.getBoundingClientRect();
        const scale = frame.width / width;
        const at = Math.floor(((event.clientX - frame.left) / scale - left) / step);
        const row = Math.floor(((event.clientY - frame.top) / scale - top) / high);
        if (at < 0 || at >= count || row >= info.rows.length) hide();
        else show(Math.max(0, row), at);
      }
      svg.addEventListener("pointermove", near);
      svg.addEventListener("pointerdown", near);
      svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
      svg.addEventListener("focusout", hide);
      svg.addEventListener("click", () => {
        if (!spot) return;
        const row = document.querySelector(`#candidates tr[data-layers="${info.rows[spot.row].candidate}"]`);
        row?.scrollIntoView({ block: "nearest", behavior: "smooth" });
      });
      svg.addEventListener("keydown", (event) => {
        const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] ?? [0, 0];
        if (event.key === "Escape") hide();
        if (!down && !right) return;
        event.preventDefault();
        const row = clamp((spot?.row ?? 0) + down, 0, info.rows.length - 1);
        spot = { row, column: clamp((spot?.column ?? 0) + right, 0, count - 1) };
        groups.forEach((each, at) => each.setAttribute("tabindex", at === row ? "0" : "-1"));
        if (document.activeElement === groups[row]) show(row, spot.column);
        else groups[row].focus();
      });
    }

    // Neighbours of the same precision are one rectangle.
    function runs(candidate) {
      const found = [];
      for (let at = 0; at < count; at += 1) {
        const sign = precisionOf(candidate, at);
        if (sign === "-") continue;
        const last = found.at(-1);
        if (last && last[1] === at && last[2] === numberOf(sign)) last[1] = at + 1;
        else found.push([at, at + 1, numberOf(sign)]);
      }
      return found;
    }

    function summed(candidate) {
      const counts = new Map();
      for (const [precision, all] of layersOf(candidate)) {
        const name = DATA.families[DATA.precisions.indexOf(precision)];
        counts.set(name, (counts.get(name) ?? 0) + all.length);
      }
      return [...counts].map(([name, many]) => `${many} ${name}`).join(", ");
    }

    function told(row, at) {
      const list = make("dl");
      const add = (term, text) => list.append(make("dt", {}, term), make("dd", {}, text));
      const sign = precisionOf(row.candidate, at);
      const fact = info.facts[at];
      add("layer", `${names[at]}${fact ? ` (${fact.op}, ${fact.size})` : ""}`);
      add("precision", sign === "-" ? "" : DATA.precisions[numberOf(sign)]);
      if (fact) add("harm", `rank ${fact.rank} of ${count}`);
      add("candidate", [row.size && `${row.size} of float`, row.loss && `loss ${row.loss}`].filter(Boolean).join(", "));
      return [make("b", {}, `#${row.candidate} ${row.aliases.join(", ")}`), list];
    }

    watchers.push((candidate) => groups.forEach((each, at) => each.classList.toggle("on", info.rows[at].candidate === candidate)));
    let drawn = 0;
    new ResizeObserver(() => {
      if (cells.clientWidth === drawn) return;
      drawn = cells.clientWidth;
      render();
    }).observe(cells);
  }

  function legend(list) {
    for (const name of [...new Set(DATA.families)].reverse()) {
      const members = DATA.families.filter((each) => each === name).length;
      const ramp = `background:linear-gradient(to right,color-mix(in srgb,var(--${name}) 30%,transparent),var(--${name}))`;
      const swatch = members > 1 ? make("span", { class: "swatch ramp", style: ramp }) : make("span", { class: "swatch", style: `background:var(--${name})` });
      list.append(make("li", {}, swatch, members > 1 ? `${name}, coarse to fine` : name));
    }
  }

  // ---- chart ----

  const SHAPES = [
    (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0z`,
    (r) => `M0,${-1.3 * r}L${1.3 * r},0L0,${1.3 * r}L${-1.3 * r},0z`,
    (r) => `M${-r},${-r}H${r}V${r}H${-r}z`,
    (r) => `M0,${-1.2 * r}L${1.15 * r},${0.9 * r}H${-1.15 * r}z`,
    (r) => `M0,${1.2 * r}L${1.15 * r},${-0.9 * r}H${-1.15 * r}z`,
    (r) => `M${-r},${-r}L0,${-0.4 * r}L${r},${-r}L${0.4 * r},0L${r},${r}L0,${0.4 * r}L${-r},${r}L${-0.4 * r},0z`,
  ];
  const CROSS = (r) => `M${-r},0H${r}M0,${-r}V${r}`;

  const colour = (series) => `var(--s${series % 6})`;

  function mark(dot, series, size) {
    if (dot.kind === "float") {
      return draw("path", { d: CROSS(size), style: `stroke:${several ? colour(series) : "var(--ink)"};stroke-width:2.5;fill:none` });
    }
    const fill = dot.kind === "other" ? "var(--other)" : colour(series);
    return draw("path", { d: SHAPES[series % SHAPES.length](size), style: `fill:${fill}` });
  }

  function ticks(low, high, count) {
    const raw = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw);
    const digits = Math.max(0, Math.ceil(-Math.log10(step) + (step / power === 2.5 ? 1 : 0) - 1e-9));
    const found = [];
    for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; at += 1) {
      found.push([at * step, (at * step).toFixed(Math.min(digits, 12))]);
    }
    return found;
  }

  // The members that none beats in this plane, from left to right.
  function steps(dots, x) {
    const sorted = dots.filter((dot) => dot.kind === "front" && dot.x[x] !== null && dot.y !== null)
      .sort((a, b) => a.x[x] - b.x[x] || a.y - b.y);
    const found = [];
    for (const dot of sorted) if (!found.length || dot.y < found.at(-1).y) found.push(dot);
    return found;
  }

  const several = (DATA.chart?.series.length ?? 0) > 1;

  function chart(figure, info) {
    const plot = figure.querySelector(".plot");
    const tip = figure.querySelector(".tip");
    const select = figure.querySelector("select");
    let placed = []; // Dots with their node and their pixels, from left to right.
    let current = null;
    let clear = () => {}; // Takes the interval off the present drawing.
    let mark_looked = () => {}; // Marks the candidate that a person points at elsewhere.

    if (!info.y.range || !info.x.length) {
      plot.textContent = "There is no candidate with both numbers to draw.";
      return;
    }
    info.x.forEach((axis, at) => select.append(make("option", { value: at }, axis.title)));
    figure.querySelector(".axes").hidden = info.x.length < 2;
    select.addEventListener("change", render);
    key(figure.querySelector(".key"), info);

    function render() {
      hide();
      const width = Math.max(280, Math.round(plot.clientWidth || 900));
      const height = Math.round(Math.min(470, Math.max(280, width * 0.5)));
      const axis = info.x[Number(select.value) || 0];
      const box = { left: 54, right: width - 16, top: 14, bottom: height - 44 };
      const [x0, x1] = axis.range;
      const [y0, y1] = info.y.range;
      const X = (v) => box.left + ((v - x0) / (x1 - x0)) * (box.right - box.left);
      const Y = (v) => box.bottom - ((v - y0) / (y1 - y0)) * (box.bottom - box.top);
      const clamp = (v, low, high) => Math.min(high, Math.max(low, v));
      const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "presentation" });
      plot.replaceChildren(svg);

      for (const [v, text] of ticks(x0, x1, Math.max(3, width / 110))) {
        svg.append(draw("line", { class: "grid", x1: X(v), x2: X(v), y1: box.top, y2: box.bottom }),
          draw("text", { x: X(v), y: box.bottom + 16, "text-anchor": "middle" }, text));
      }
      for (const [v, text] of ticks(y0, y1, height / 60)) {
        if (v < -1e-12) continue; // The axis begins a little below nothing, to show dots whole.
        svg.append(draw("line", { class: "grid", x1: box.left, x2: box.right, y1: Y(v), y2: Y(v) }),
          draw("text", { x: box.left - 7, y: Y(v) + 4, "text-anchor": "end" }, text));
      }
      svg.append(draw("text", { class: "title", x: (box.left + box.right) / 2, y: height - 8, "text-anchor": "middle" }, axis.title));
      const middle = (box.top + box.bottom) / 2;
      svg.append(draw("text", { class: "title", "text-anchor": "middle", transform: `translate(13 ${middle}) rotate(-90)` }, info.y.title));

      info.series.forEach((series, at) => {
        const line = steps(series.dots, axis.at);
        if (!line.length) return;
        const path = line.map((dot, n) => (n ? `H${X(dot.x[axis.at])}V${Y(dot.y)}` : `M${X(dot.x[axis.at])},${Y(dot.y)}`)).join("");
        svg.append(draw("path", { class: "step", d: path, style: `stroke:${colour(at)}` }));
      });
      info.series.forEach((series, at) => {
        const lines = series.dots.filter((dot) => dot.kind === "front" && dot.x[axis.at] !== null && dot.y !== null)
          .map((dot) => interval({ dot, px: clamp(X(dot.x[axis.at]), box.left, box.right) }));
        svg.append(draw("path", { class: "whiskers", d: lines.join(""), style: `stroke:${colour(at)}` }));
      });
      const whisker = draw("path", { class: "whisker", d: "" });
      svg.append(whisker);

      placed = [];
      // Float models of several studies at one place need one label.
      const named = new Set();
      const order = { other: 0, float: 1, front: 2 };
      const all = info.series.flatMap((series, at) => series.dots.map((dot) => ({ dot, at })))
        .filter(({ dot }) => dot.x[axis.at] !== null && dot.y !== null)
        .sort((a, b) => order[a.dot.kind] - order[b.dot.kind]);
      for (const { dot, at } of all) {
        const px = clamp(X(dot.x[axis.at]), box.left, box.right);
        const py = clamp(Y(dot.y), box.top, box.bottom);
        const node = mark(dot, at, dot.kind === "front" ? 6.5 : dot.kind === "float" ? 7 : 4.5);
        const beyond = px !== X(dot.x[axis.at]) || py !== Y(dot.y);
        node.setAttribute("class", beyond ? "dot beyond" : "dot");
        node.setAttribute("transform", `translate(${px} ${py})`);
        node.setAttribute("tabindex", "-1");
        node.setAttribute("role", "img");
        node.setAttribute("aria-label", spoken(dot, info.series[at].name));
        if (dot.label && dot.kind === "front") {
          svg.append(draw("path", { class: "ring", d: SHAPES[at % SHAPES.length](11), transform: `translate(${px} ${py})`, style: `stroke:${colour(at)}` }));
        }
        svg.append(node);
        const far = beyond && dot.beyond[axis.at];
        const entry = { dot, node, px, py, name: info.series[at].name, label: far ? (named.has(far) ? "" : far) : dot.label };
        if (far) named.add(far);
        node.addEventListener("focus", () => show(entry));
        node.addEventListener("blur", hide);
        placed.push(entry);
      }
      placed.sort((a, b) => a.px - b.px || b.py - a.py);
      placed[0]?.node.setAttribute("tabindex", "0");
      label(svg, placed, box);

      function show(entry) {
        current?.node.classList.remove("on");
        current = entry;
        entry.node.classList.add("on");
        whisker.setAttribute("d", interval(entry));
        tip.replaceChildren(...told(entry));
        // In pixels of the page: the drawing may be scaled.
        const scale = svg.getBoundingClientRect().width / width;
        place(tip, figure, entry.px * scale, plot.offsetTop + entry.py * scale);
        look(entry.dot.layers);
      }

      // The 95 % interval, with no cap where it goes on beyond the axes.
      function interval({ dot, px }) {
        if (dot.low === null || dot.high === null) return "";
        const ends = [dot.low, dot.high].map((v) => clamp(Y(v), box.top, box.bottom));
        const caps = [dot.low, dot.high].filter((v) => v >= y0 && v <= y1).map((v) => `M${px - 5},${Y(v)}h10`);
        return `M${px},${ends[0]}V${ends[1]}${caps.join("")}`;
      }

      svg.addEventListener("pointermove", (event) => near(event));
      svg.addEventListener("pointerdown", (event) => near(event));
      svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
      function near(event) {
        const frame = svg.getBoundingClientRect();
        const scale = frame.width / width;
        const at = (entry) => Math.hypot(entry.px * scale - (event.clientX - frame.left), entry.py * scale - (event.clientY - frame.top));
        const closest = placed.reduce((best, entry) => (at(entry) < at(best) ? entry : best), placed[0]);
        if (closest && at(closest) < 26) { if (closest !== current) show(closest); } else hide();
      }
      svg.addEventListener("keydown", (event) => {
        const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (event.key === "Escape") hide();
        if (!move) return;
        event.preventDefault();
        const from = placed.findIndex((entry) => entry.node === document.activeElement);
        const next = placed[Math.max(0, Math.min(placed.length - 1, from + move))];
        placed.forEach((entry) => entry.node.setAttribute("tabindex", "-1"));
        next.node.setAttribute("tabindex", "0");
        next.node.focus();
      });

      clear = () => whisker.setAttribute("d", "");
      mark_looked = (candidate) => {
        if (current) return;
        const entry = candidate === null ? null : placed.find(({ dot }) => dot.layers === candidate);
        placed.forEach((each) => each.node.classList.toggle("on", each === entry));
        whisker.setAttribute("d", entry ? interval(entry) : "");
      };
    }

    function hide() {
      current?.node.classList.remove("on");
      if (current) look(null);
      current = null;
      tip.hidden = true;
      clear();
    }

    watchers.push((candidate) => mark_looked(candidate));
    let drawn = 0;
    new ResizeObserver(() => {
      if (plot.clientWidth === drawn) return;
      drawn = plot.clientWidth;
      render();
    }).observe(plot);
  }

  function key(list, info) {
    const entry = (shape, text) => list.append(make("li", {}, draw("svg", { width: 18, height: 18, viewBox: "-9 -9 18 18", "aria-hidden": "true" }, shape), text));
    info.series.forEach((series, at) => entry(mark({ kind: "front" }, at, 6), several ? series.name : "on the front"));
    if (info.series.some((series) => series.dots.some((dot) => dot.kind === "front" && dot.label))) {
      entry(draw("path", { class: "ring", d: SHAPES[0](7), style: `stroke:${colour(0)}` }), "recommended");
    }
    if (info.series.some((series) => series.dots.some((dot) => dot.kind === "other"))) entry(mark({ kind: "other" }, 0, 4.5), "other candidates");
    if (info.series.some((series) => series.dots.some((dot) => dot.kind === "float"))) {
      entry(draw("path", { d: CROSS(6), style: "stroke:var(--ink);stroke-width:2.5" }), "float model");
    }
  }

  function told({ dot, name }) {
    const list = make("dl");
    const add = (term, text) => list.append(make("dt", {}, term), make("dd", {}, text));
    if (several) add("study", name);
    dot.facts.forEach(([term, text]) => add(term, text));
    if (dot.layers !== null) {
      const groups = [...layersOf(dot.layers)].filter(([precision]) => HIGHER.has(precision));
      for (const [precision, names] of groups) {
        const more = names.length - SHOWN_LAYERS;
        const listed = names.slice(0, SHOWN_LAYERS).join(", ") + (more > 0 ? ` and ${more} more` : "");
        add(precision, `${names.length} of ${DATA.names.length}: ${listed}`);
      }
      if (!groups.length) add("float32", `none of ${DATA.names.length} layers`);
    }
    return [make("b", {}, dot.title), list];
  }

  function spoken(dot, name) {
    return [dot.title, ...(several ? [name] : []), ...dot.facts.map(([term, text]) => `${term} ${text}`)].join(", ");
  }

  // Labels go beside their dots, where they hide no dot and no other label.
  function label(svg, placed, box) {
    // Rather on a grey dot than on one of the front, and least of all on a recommended one.
    const taken = placed.map(({ dot, px, py }) => {
      const ringed = dot.label && dot.kind === "front";
      const reach = ringed ? 12 : 8;
      return { x: px - reach, y: py - reach, width: 2 * reach, height: 2 * reach, weight: dot.kind === "other" ? 0.5 : ringed ? 4 : 1 };
    });
    const meets = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
    for (const { px, py, label: words } of placed.filter((entry) => entry.label)) {
      const text = draw("text", { class: "tag" }, words);
      svg.append(text);
      const spots = [[15, -9, "start"], [-15, -9, "end"], [15, 18, "start"], [-15, 18, "end"], [0, -18, "middle"], [0, 28, "middle"], [16, 4, "start"], [-16, 4, "end"], [-15, -28, "end"], [15, -28, "start"], [0, -40, "end"]];
      let least = Infinity;
      let chosen = spots[0];
      for (const spot of spots) {
        text.setAttribute("x", px + spot[0]);
        text.setAttribute("y", py + spot[1]);
        text.setAttribute("text-anchor", spot[2]);
        const own = text.getBBox();
        const leaves = own.x < box.left || own.x + own.width > box.right + 12 || own.y < 0 || own.y + own.height > box.bottom + 2;
        const cost = 100 * leaves + taken.filter((each) => meets(own, each)).reduce((sum, each) => sum + each.weight, 0);
        if (cost < least) { least = cost; chosen = spot; }
      }
      text.setAttribute("x", px + chosen[0]);
      text.setAttribute("y", py + chosen[1]);
      text.setAttribute("text-anchor", chosen[2]);
      const own = text.getBBox();
      taken.push({ x: own.x, y: own.y, width: own.width, height: own.height, weight: 10 });
    }
  }

  document.querySelectorAll("table.sortable").forEach(sortable);
  const candidates = document.getElementById("candidates");
  if (candidates) filterable(candidates);
  const figure = document.getElementById("chart");
  if (figure) chart(figure, DATA.chart);
  const heat = document.getElementById("strip");
  if (heat) strip(heat, DATA.strip);
  document.querySelectorAll("pre").forEach(copyable);
})();
