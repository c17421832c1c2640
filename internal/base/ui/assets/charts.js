// What charts add with JavaScript: a crosshair with the values of all series, arrow keys, and a link on each bar. Without
// it, the server's drawing and the table below it say the same.
(() => {
  "use strict";

  const height = 220, top = 14, foot = 28; // as in the server's drawing, so that nothing moves
  const svgNS = "http://www.w3.org/2000/svg";

  // readTable returns what the table of a chart says: its series from below to the top, and a row for each bar.
  const readTable = (table) => {
    const heads = [...table.tHead.rows[0].cells].slice(1);
    const columns = heads.map((head, i) => ({
      name: head.textContent,
      kind: "series" in head.dataset ? head.dataset.series : "whole" in head.dataset ? "whole" : "before" in head.dataset ? "before" : "note",
      at: i + 1,
    }));
    const rows = [...table.tBodies[0].rows].map((row) => ({
      label: row.cells[0].textContent,
      href: row.cells[0].querySelector("a")?.href ?? "",
      cells: [...row.cells].map((cell) => ({ text: cell.textContent.trim(), value: Number(cell.dataset.value ?? 0) })),
    }));
    return { columns, rows };
  };

  // seriesOf returns what is drawn, the first at the back: cumulated bars or lines, then the period before.
  const seriesOf = ({ columns, rows }, asLines) => {
    const parts = columns.filter((c) => c.kind.startsWith("series-"));
    const drawn = parts.length ? parts : columns.filter((c) => c.kind === "whole");
    let list;
    if (asLines) {
      list = drawn.map((c) => ({ kind: c.kind, line: true, data: rows.map((r) => r.cells[c.at].value < 0 ? null : r.cells[c.at].value) }));
    } else {
      const sums = rows.map(() => 0);
      list = drawn.map((c) => ({
        kind: c.kind === "whole" ? "series-1" : c.kind,
        data: rows.map((r, i) => { sums[i] += Math.max(r.cells[c.at].value, 0); return sums[i]; }),
      })).reverse();
    }
    const before = columns.find((c) => c.kind === "before");
    if (before) list.push({ kind: "before", line: true, data: rows.map((r) => r.cells[before.at].value) });
    return list;
  };

  // colorOf returns the colour that the style sheet gives to a series.
  const colorOf = (box, kind) => {
    const probe = document.createElement("span");
    probe.className = kind;
    box.append(probe);
    const style = getComputedStyle(probe);
    const color = style.getPropertyValue(kind === "before" ? "--soft" : "--series").trim();
    probe.remove();
    return color;
  };

  const make = (name, text) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // swatch returns a small square in the colour of a series.
  const swatch = (kind) => {
    const svg = document.createElementNS(svgNS, "svg");
    svg.setAttribute("viewBox", "0 0 10 10");
    const rect = document.createElementNS(svgNS, "rect");
    for (const [name, value] of Object.entries({ class: kind, width: 10, height: 10, rx: 2 })) rect.setAttribute(name, value);
    svg.append(rect);
    return svg;
  };

  const draw = (box) => {
    const table = document.getElementById(box.dataset.table), svg = box.querySelector("svg.chart");
    if (!table || !svg) return;
    const read = readTable(table), { columns, rows } = read;
    if (!rows.length) return;
    const list = seriesOf(read, "lines" in table.dataset);

    const tip = make("div");
    tip.className = "plot-tip";
    tip.hidden = true;
    tip.setAttribute("aria-hidden", "true"); // the slider's text says the same
    box.append(tip);

    let current = rows.length - 1, armed = -1;
    const sentence = (row) => `${row.label}: ` + columns.map((c) => `${c.name} ${row.cells[c.at].text}`).join(", ");

    const showTip = (u) => {
      const row = rows[current];
      tip.replaceChildren(make("strong", row.label), ...columns.map((c) => {
        const line = make("div"), name = make("span", c.name);
        if (c.kind.startsWith("series-")) name.prepend(swatch(c.kind));
        line.append(name, make("span", row.cells[c.at].text));
        return line;
      }));
      tip.hidden = false;
      const at = u.root.offsetLeft + u.valToPos(current, "x"), room = box.clientWidth - tip.offsetWidth;
      tip.style.left = `${Math.max(0, Math.min(room, at < box.clientWidth / 2 ? at + 14 : at - 14 - tip.offsetWidth))}px`;
      box.setAttribute("aria-valuenow", String(current + 1));
      box.setAttribute("aria-valuetext", sentence(row));
    };

    const data = [rows.map((_, i) => i), ...list.map((s) => s.data)];
    const bars = uPlot.paths.bars({ size: [0.7, Infinity] });
    const plot = new uPlot({
      width: svg.clientWidth, height,
      padding: [top, 0, foot, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: false, range: [-0.5, rows.length - 0.5] }, y: { range: [0, Number(box.dataset.top)] } },
      axes: [{ show: false }, { show: false }],
      series: [{}, ...list.map((s) => s.line
        ? { stroke: () => colorOf(box, s.kind), width: s.kind === "before" ? 1.5 : 2, dash: s.kind === "before" ? [4, 4] : undefined, points: { show: rows.length < 2 } }
        : { fill: () => colorOf(box, s.kind), width: 0, paths: bars, points: { show: false } })],
      hooks: {
        setCursor: [(u) => {
          if (u.cursor.idx === null || u.cursor.idx === undefined || u.cursor.left < 0) {
            if (document.activeElement !== box) tip.hidden = true;
            return;
          }
          current = u.cursor.idx;
          showTip(u);
        }],
      },
    }, data, box);
    box.classList.add("drawn");
    svg.setAttribute("aria-hidden", "true");

    // A slider gets the arrow keys also from screen readers, and its text is read on each change.
    box.tabIndex = 0;
    for (const [name, value] of Object.entries({
      role: "slider", "aria-label": box.dataset.label, "aria-valuemin": 1, "aria-valuemax": rows.length,
      "aria-valuenow": rows.length, "aria-valuetext": sentence(rows[current]),
    })) box.setAttribute(name, value);

    const moveTo = (i) => {
      current = Math.max(0, Math.min(rows.length - 1, i));
      plot.setCursor({ left: plot.valToPos(current, "x"), top: 0 });
      showTip(plot);
    };
    const hide = () => { tip.hidden = true; plot.setCursor({ left: -10, top: -10 }); };
    const open = () => { if (rows[current].href) location.assign(rows[current].href); };
    box.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const week = 7;
      const moves = {
        ArrowLeft: current - 1, ArrowRight: current + 1, ArrowDown: current - 1, ArrowUp: current + 1,
        Home: 0, End: rows.length - 1, PageDown: current - week, PageUp: current + week,
      };
      if (event.key in moves) moveTo(moves[event.key]);
      else if (event.key === "Enter") open();
      else if (event.key === "Escape") hide();
      else return;
      event.preventDefault();
    });
    box.addEventListener("focus", () => { if (box.matches(":focus-visible")) moveTo(current); });
    box.addEventListener("blur", hide);
    box.classList.toggle("linked", rows.some((row) => row.href));
    plot.over.addEventListener("click", (event) => {
      // A finger has no hover: its first touch shows the values, the second opens the day.
      if (event.pointerType === "touch" && armed !== current) { armed = current; return; }
      open();
    });

    new ResizeObserver(() => {
      if (svg.clientWidth && svg.clientWidth !== plot.width) plot.setSize({ width: svg.clientWidth, height });
    }).observe(svg);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plot.redraw());
  };

  for (const box of document.querySelectorAll(".plot")) draw(box);
})();
