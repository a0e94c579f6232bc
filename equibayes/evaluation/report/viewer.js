"use strict";
// Balls and sticks on a 2-D canvas: no WebGL, so that it draws on any machine; a few thousand atoms turn smoothly.
(() => {
  const data = JSON.parse(document.getElementById("viewer-data").textContent);
  const byId = (id) => document.getElementById(id);
  const pickSet = byId("viewer-set"), pickColour = byId("viewer-colour"), ellipsoids = byId("viewer-ellipsoids");
  if (!data.sets.some((set) => set.most.length)) return;
  byId("viewer").hidden = false;

  // linear in the value, over the span of all structures shown, so that the two views can be compared
  const rgb = (share) => {
    const place = Math.min(Math.max(share, 0), 1) * (data.colours.length - 1), low = Math.floor(place);
    const a = data.colours[low], b = data.colours[Math.min(low + 1, data.colours.length - 1)];
    return a.map((part, i) => Math.round(part + (b[i] - part) * (place - low)));
  };
  const css = (c) => `rgb(${c.join(",")})`;
  const mix = (c, other, share) => c.map((part, i) => Math.round(part + (other[i] - part) * share));
  const SIZE = 0.55, radius = (s, i) => Math.max(s.radii[i], 0.45);  // balls smaller than atoms leave the bonds to be seen
  const GREY = [140, 148, 158], UNIT = " meV/Å";
  const show = (value) => (value === null ? "not known" : value.toFixed(value < 10 ? 2 : 1) + UNIT);

  // novelty from nothing to far beyond what was learned; σ and error by one scale, so that a colour means the same number
  const span = (set) => (pickColour.value === "novelty" ? [0, 3] : set.span);

  // 3 × 3 rotations, row by row
  const turnBy = (m, ax, ay) => {
    const [cx, sx, cy, sy] = [Math.cos(ax), Math.sin(ax), Math.cos(ay), Math.sin(ay)];
    const r = [[cy, 0, sy], [sx * sy, cx, -sx * cy], [-cx * sy, sx, cx * cy]];
    return r.map((row) => [0, 1, 2].map((j) => row[0] * m[0][j] + row[1] * m[1][j] + row[2] * m[2][j]));
  };
  const apply = (m, p) => m.map((row) => row[0] * p[0] + row[1] * p[1] + row[2] * p[2]);
  const START = turnBy([[1, 0, 0], [0, 1, 0], [0, 0, 1]], 0.35, 0.35);

  // Å per meV/Å: the largest σ of the set, in any direction at most √3 times as large, is drawn 0.8 Å long
  const length = (set) => 0.8 / (set.span[1] || 1);

  class View {
    constructor(side) {
      this.side = side;
      this.canvas = byId("viewer-" + side);
      this.choice = byId(`viewer-${side}-choice`);
      this.output = byId(`viewer-${side}-atom`);
      this.choice.addEventListener("change", () => this.open(Number(this.choice.value)));
      this.listen();
      new ResizeObserver(() => this.draw()).observe(this.canvas);
    }

    load(set) {
      this.set = set;
      this.choice.replaceChildren(...set[this.side].map((s, i) => {
        const largest = Math.max(...s.sigma.map((v) => v ?? 0));
        return new Option(`${i + 1}: σ up to ${largest.toFixed(0)}${UNIT}, frame ${s.frame}, ${s.formula}`, i);
      }));
      this.open(0);
    }

    open(index) {
      this.structure = this.set[this.side][index];
      const far = this.structure.positions.map((p, i) => Math.hypot(...p) + this.structure.radii[i]);
      const atoms = Math.max(1.5, ...far), corners = this.structure.cell ? this.corners().map((c) => Math.hypot(...c)) : [0];
      this.reach = Math.max(atoms, Math.min(1.6 * atoms, Math.max(...corners)));  // a box of vacuum may stick out
      this.reset();
    }

    reset() {
      [this.turn, this.zoom, this.atom] = [START, 1, null];
      this.tell();
      this.draw();
    }

    listen() {
      const canvas = this.canvas;
      let last = null;
      canvas.addEventListener("pointerdown", (e) => { last = [e.clientX, e.clientY]; canvas.setPointerCapture(e.pointerId); });
      canvas.addEventListener("pointerup", () => { last = null; });
      canvas.addEventListener("pointercancel", () => { last = null; });
      canvas.addEventListener("pointerleave", () => this.choose(null));
      canvas.addEventListener("pointermove", (e) => {
        if (!last) return this.choose(this.under(e));
        this.turn = turnBy(this.turn, (e.clientY - last[1]) / 120, (e.clientX - last[0]) / 120);
        last = [e.clientX, e.clientY];
        this.draw();
      });
      // a plain wheel scrolls the page
      canvas.addEventListener("wheel", (e) => { if (e.ctrlKey) { e.preventDefault(); this.scale(Math.exp(-e.deltaY / 400)); } }, { passive: false });
      const count = () => this.structure.symbols.length;
      const keys = {
        ArrowLeft: () => this.rotate(0, -0.15), ArrowRight: () => this.rotate(0, 0.15),
        ArrowUp: () => this.rotate(-0.15, 0), ArrowDown: () => this.rotate(0.15, 0),
        "+": () => this.scale(1.15), "=": () => this.scale(1.15), "-": () => this.scale(1 / 1.15), 0: () => this.reset(),
        n: () => this.choose(((this.atom ?? -1) + 1) % count()),
        p: () => this.choose(((this.atom ?? 0) - 1 + count()) % count()),
      };
      canvas.addEventListener("keydown", (e) => {
        const act = !e.ctrlKey && !e.metaKey && !e.altKey && (keys[e.key] || keys[e.key.toLowerCase()]);
        if (act) { e.preventDefault(); act(); }
      });
    }

    rotate(ax, ay) { this.turn = turnBy(this.turn, ax, ay); this.draw(); }
    scale(factor) { this.zoom = Math.min(Math.max(this.zoom * factor, 0.3), 12); this.draw(); }
    choose(atom) { if (atom !== this.atom) { this.atom = atom; this.tell(); this.draw(); } }

    tell() {
      const s = this.structure, a = this.atom;
      const novelty = a === null || s.novelty[a] === null ? "" : `, novelty ${s.novelty[a].toPrecision(3)}`;
      this.output.textContent = a === null ? "" : `${s.symbols[a]} ${a}: σ ${show(s.sigma[a])}, error ${show(s.error[a])}${novelty}`;
    }

    under(e) {
      const box = this.canvas.getBoundingClientRect(), [x, y] = [e.clientX - box.left, e.clientY - box.top];
      const hit = (this.balls || []).filter((b) => Math.hypot(b.x - x, b.y - y) <= b.r).pop();  // the last drawn lies in front
      return hit ? hit.i : null;
    }

    colourOf(i) {
      const value = this.structure[pickColour.value][i], [low, high] = span(this.set);
      return value === null ? GREY : rgb((value - low) / (high - low || 1));
    }

    draw() {
      if (!this.structure) return;
      const ratio = Math.max(window.devicePixelRatio || 1, 1), width = this.canvas.clientWidth, height = this.canvas.clientHeight;
      if (!width || !height) return;
      if (this.canvas.width !== Math.round(width * ratio)) [this.canvas.width, this.canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
      const pen = this.canvas.getContext("2d"), s = this.structure;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, width, height);
      const scale = 0.55 * Math.min(width, height) / this.reach * this.zoom;
      const place = (p) => {
        const [x, y, z] = apply(this.turn, p), near = 1 / (1 - z / (6 * this.reach));  // slight perspective
        return { x: width / 2 + scale * near * x, y: height / 2 - scale * near * y, z, near };
      };
      const balls = s.positions.map((p, i) => {
        const b = place(p);
        return { ...b, i, r: Math.max(2.5, SIZE * radius(s, i) * scale * b.near) };
      });
      if (s.cell) this.box(pen, place, s.cell);
      const sticks = s.bonds.map(([i, j]) => this.between(i, j, place));
      for (const item of [...balls, ...sticks].sort((a, b) => a.z - b.z)) {
        if (item.from) this.stick(pen, item, scale); else this.ball(pen, item, s.symbols[item.i]);
      }
      this.balls = balls.sort((a, b) => a.z - b.z);
      if (ellipsoids && ellipsoids.checked && s.ellipsoids) balls.forEach((b) => this.ellipse(pen, b, s.ellipsoids[b.i], scale));
    }

    // the outline of the ellipsoid at one σ: of a covariance C seen along z, the block of x and y of turn C turnᵀ
    ellipse(pen, b, c, scale) {
      const [u, v] = this.turn, product = (p, q) => p.reduce((sum, pi, i) => sum + q.reduce((row, qj, j) => row + pi * c[i][j] * qj, 0), 0);
      const xx = product(u, u), yy = product(v, v), xy = -product(u, v);  // y points down on a canvas
      const middle = (xx + yy) / 2, apart = Math.hypot((xx - yy) / 2, xy), size = scale * b.near * length(this.set);
      const axes = [middle + apart, middle - apart].map((each) => size * Math.sqrt(Math.max(each, 0)));
      pen.beginPath(); pen.ellipse(b.x, b.y, ...axes, Math.atan2(2 * xy, xx - yy) / 2, 0, 2 * Math.PI);
      [pen.lineWidth, pen.strokeStyle] = [1.5, "#d55e00"];
      pen.stroke();
    }

    // from surface to surface, so that a stick neither covers the ball behind it nor shows through the one in front
    between(i, j, place) {
      const s = this.structure, [p, q] = [s.positions[i], s.positions[j]], d = q.map((v, k) => v - p[k]), length = Math.hypot(...d) || 1;
      const at = (end, share) => place(end.map((v, k) => v + share * d[k]));
      const from = at(p, 0.9 * SIZE * radius(s, i) / length), to = at(q, -0.9 * SIZE * radius(s, j) / length);
      return { from, to, z: (from.z + to.z) / 2 };
    }

    stick(pen, { from, to }, scale) {
      pen.lineCap = "round";
      pen.lineWidth = Math.max(1.5, 0.16 * scale * (from.near + to.near) / 2);
      pen.strokeStyle = css(GREY);
      pen.beginPath(); pen.moveTo(from.x, from.y); pen.lineTo(to.x, to.y); pen.stroke();
    }

    ball(pen, b, symbol) {
      const base = this.colourOf(b.i), shade = pen.createRadialGradient(b.x - 0.35 * b.r, b.y - 0.4 * b.r, 0.1 * b.r, b.x, b.y, b.r);
      shade.addColorStop(0, css(mix(base, [255, 255, 255], 0.55)));
      shade.addColorStop(0.45, css(base));
      shade.addColorStop(1, css(mix(base, [0, 0, 0], 0.3)));
      pen.beginPath(); pen.arc(b.x, b.y, b.r, 0, 2 * Math.PI);
      pen.fillStyle = shade; pen.fill();
      const chosen = b.i === this.atom;
      pen.lineWidth = chosen ? 3 : 1;
      pen.strokeStyle = chosen ? "#d55e00" : "rgba(128,136,146,0.9)";
      pen.stroke();
      if (b.r < 7) return;
      pen.font = `600 ${Math.round(Math.min(0.95 * b.r, 22))}px system-ui, sans-serif`;
      [pen.textAlign, pen.textBaseline] = ["center", "middle"];
      pen.fillStyle = 0.3 * base[0] + 0.59 * base[1] + 0.11 * base[2] > 120 ? "#10151a" : "#ffffff";
      pen.fillText(symbol, b.x, b.y);
    }

    corners() {
      const [o, a, b, c] = this.structure.cell, sum = (...parts) => o.map((v, i) => parts.reduce((s, p) => s + p[i], v));
      return [sum(), sum(a), sum(b), sum(c), sum(a, b), sum(a, c), sum(b, c), sum(a, b, c)];
    }

    box(pen, place, [origin, ...edges]) {
      const corner = (a, b, c) => place(origin.map((o, i) => o + a * edges[0][i] + b * edges[1][i] + c * edges[2][i]));
      [pen.lineWidth, pen.strokeStyle] = [1, css(GREY)];
      for (const [a, b] of [[0, 0], [0, 1], [1, 0], [1, 1]]) {
        for (const [from, to] of [[[0, a, b], [1, a, b]], [[a, 0, b], [a, 1, b]], [[a, b, 0], [a, b, 1]]]) {
          const p = corner(...from), q = corner(...to);
          pen.beginPath(); pen.moveTo(p.x, p.y); pen.lineTo(q.x, q.y); pen.stroke();
        }
      }
    }
  }

  const views = ["most", "least"].map((side) => new View(side));
  const bar = byId("viewer-bar"), pen = bar.getContext("2d");
  [bar.width, bar.height] = [data.colours.length * 8, 1];
  for (let x = 0; x < bar.width; x++) { pen.fillStyle = css(rgb(x / (bar.width - 1))); pen.fillRect(x, 0, 1, 1); }

  // what the colours mean
  const explain = (set) => {
    const kind = pickColour.value, shown = [...set.most, ...set.least].flatMap((s) => s[kind]);
    const what = kind === "sigma" ? "predicted σ" : "observed error";
    const grey = shown.includes(null) ? "; grey: not known" : "";
    byId("viewer-what").textContent = kind === "novelty" ? `Colour: novelty of an atom; 1 is the edge of what was learned${grey}`
      : `Colour: ${what} of an atom, root mean square of its three force components, in meV/Å${grey}`;
    const [low, high] = span(set), digits = high - low < 10 ? 2 : high - low < 40 ? 1 : 0;
    const beyond = [shown.some((v) => v !== null && v < low - 0.01), shown.some((v) => v > high + 0.01)];
    byId("viewer-ticks").replaceChildren(...[0, 0.25, 0.5, 0.75, 1].map((share) => {
      const tick = document.createElement("span");
      const sign = share === 0 && beyond[0] ? "≤ " : share === 1 && beyond[1] ? "≥ " : "";
      tick.textContent = sign + (low + share * (high - low)).toFixed(digits);
      return tick;
    }));
    const counted = new Set([...set.most, ...set.least].flatMap((s) => s.symbols));
    byId("viewer-elements").replaceChildren("Letter and size: element (covalent radius)", ...Object.entries(data.elements)
      .filter(([symbol]) => counted.has(symbol)).map(([symbol, [name, size]]) => {
        const item = document.createElement("span"), dot = document.createElement("span");
        [dot.className, dot.style.width, dot.style.height] = ["dot", `${24 * Math.max(size, 0.45)}px`, `${24 * Math.max(size, 0.45)}px`];
        item.append(dot, `${symbol} ${name}`);
        return item;
      }));
  };
  const current = () => data.sets[Number(pickSet.value)];
  const open = () => { views.forEach((view) => view.load(current())); explain(current()); };
  pickSet.addEventListener("change", open);
  if (ellipsoids) ellipsoids.addEventListener("change", () => views.forEach((view) => view.draw()));
  pickColour.addEventListener("change", () => { views.forEach((view) => view.draw()); explain(current()); });
  window.addEventListener("beforeprint", () => views.forEach((view) => view.draw()));
  open();
})();
