// One small chart of the last ten minutes on a canvas. Draws and formats; computes no figure.
// A point is {time_s, ...figures}; a missing figure is null and leaves a gap in its line.

const SPAN_S = 600;
const GAP_S = 3.5; // points further apart than this are not joined
const DASH = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const FORMATS = {
  count: (value) => whole.format(value),
  rate: (value) => (value < 100 ? tenths : whole).format(value),
  percent: (value) => `${(value < 10 && value > 0 ? tenths : whole).format(value)} %`,
  seconds: (value) => {
    if (value >= 10) return `${tenths.format(value)} s`;
    if (value >= 1) return `${value.toFixed(2)} s`;
    return value < 0.01 ? `${tenths.format(value * 1000)} ms` : `${whole.format(value * 1000)} ms`;
  },
  bytes: (value) => {
    const gib = value / 2 ** 30;
    return gib >= 1 ? `${tenths.format(gib)} GiB` : `${whole.format(value / 2 ** 20)} MiB`;
  },
  watts: (value) => `${whole.format(value)} W`,
  celsius: (value) => `${whole.format(value)} °C`,
  megahertz: (value) => `${whole.format(value)} MHz`,
  duration: (value) => {
    const minutes = Math.floor(value / 60);
    if (minutes < 1) return `${whole.format(value)} s`;
    if (minutes < 60) return `${minutes} min`;
    const hours = Math.floor(minutes / 60);
    return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
  },
};

function show(value, format) {
  return value === null || value === undefined ? DASH : FORMATS[format](value);
}

function create(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

class Chart {
  // spec: {title, format, series: [{name, read(point)}], ceiling?(): number, floor?: number, stacked?}
  constructor(figure, spec, onHover) {
    this.spec = spec;
    this.figure = figure;
    this.points = [];
    this.hoverTime = null;
    this.isPointed = false;
    this.values = spec.series.map((series, index) => this.legendValue(series, index));
    const caption = create("figcaption", "", spec.title);
    const legend = create("span", "legend");
    legend.append(...this.values.map((value) => value.item));
    caption.append(legend);
    this.canvas = create("canvas");
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `${spec.title}, last ten minutes; the figures are in the table below`);
    this.tip = create("div", "tip");
    this.tip.hidden = true;
    figure.replaceChildren(caption, this.canvas, this.tip);
    this.canvas.addEventListener("pointermove", (event) => this.point(event, onHover));
    for (const name of ["pointerleave", "pointercancel"]) {
      this.canvas.addEventListener(name, () => this.leave(onHover));
    }
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  legendValue(series, index) {
    const item = create("span", "");
    const value = create("b", "", DASH);
    if (this.spec.series.length > 1) {
      const swatch = create("i", "");
      swatch.style.background = `var(${this.colorName(index)})`;
      item.append(swatch, `${series.name} `);
    }
    item.append(value);
    return { item, value };
  }

  colorName(index) {
    const names = this.spec.stacked ? ["--pool-used", "--pool-cached"] : ["--series-a", "--series-b"];
    return names[index];
  }

  update(points) {
    this.points = points;
    const newest = points[points.length - 1];
    this.spec.series.forEach((series, index) => {
      this.values[index].value.textContent = show(newest ? series.read(newest) : null, this.spec.format);
    });
    this.draw();
  }

  point(event, onHover) {
    const { left, width } = this.canvas.getBoundingClientRect();
    const end = this.points.length ? this.points[this.points.length - 1].time_s : 0;
    this.isPointed = true;
    onHover(end - SPAN_S + ((event.clientX - left) / width) * SPAN_S);
  }

  leave(onHover) {
    this.isPointed = false;
    onHover(null);
  }

  hover(time) {
    this.hoverTime = time;
    this.draw();
  }

  nearest() {
    if (this.hoverTime === null || !this.points.length) return null;
    const distance = (point) => Math.abs(point.time_s - this.hoverTime);
    const found = this.points.reduce((best, point) => (distance(point) < distance(best) ? point : best));
    return distance(found) <= GAP_S ? found : null;
  }

  ceiling() {
    const given = this.spec.ceiling?.();
    if (given) return given;
    const values = this.points.flatMap((point) => this.spec.series.map((series) => series.read(point) ?? 0));
    const highest = Math.max(this.spec.floor ?? 0, ...values);
    const step = 10 ** Math.floor(Math.log10(highest || 1));
    return [1, 2, 4, 5, 10].map((factor) => factor * step).find((nice) => nice >= highest) ?? step * 10;
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width) return;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    const plot = { top: 18, height: height - 36, width };
    const ceiling = this.ceiling();
    const end = this.points.length ? this.points[this.points.length - 1].time_s : 0;
    this.at = {
      x: (time) => ((time - (end - SPAN_S)) / SPAN_S) * width,
      y: (value) => plot.top + plot.height * (1 - Math.min(value, ceiling) / ceiling),
    };
    const style = getComputedStyle(this.canvas);
    const color = (name) => style.getPropertyValue(name);
    this.drawGrid(context, plot, ceiling, color);
    if (this.spec.stacked) this.drawStack(context, color);
    else this.drawLines(context, color);
    this.drawHover(context, plot, color);
  }

  drawGrid(context, plot, ceiling, color) {
    context.font = `11px ${getComputedStyle(this.canvas).fontFamily}`;
    context.fillStyle = color("--subdued");
    context.strokeStyle = color("--grid");
    context.lineWidth = 1;
    for (const share of [0, 0.5, 1]) {
      const y = Math.round(plot.top + plot.height * share) + 0.5;
      context.beginPath();
      context.moveTo(0, y);
      context.lineTo(plot.width, y);
      context.stroke();
    }
    context.textAlign = "left";
    context.fillText(show(ceiling, this.spec.format).replace(/\.0+(?=\D|$)/, ""), 0, plot.top - 5);
    const below = plot.top + plot.height + 13;
    context.fillText("−10 min", 0, below);
    context.textAlign = "center";
    if (plot.width > 220) context.fillText("−5 min", plot.width / 2, below);
    context.textAlign = "right";
    context.fillText(this.points.length ? clock.format(this.points[this.points.length - 1].time_s * 1000) : "", plot.width, below);
  }

  runs(read) {
    const runs = [];
    let previous = null;
    for (const point of this.points) {
      const value = read(point) ?? null;
      if (value !== null) {
        const joins = previous !== null && point.time_s - previous <= GAP_S;
        if (!joins) runs.push([]);
        runs[runs.length - 1].push([this.at.x(point.time_s), this.at.y(value)]);
      }
      previous = value === null ? null : point.time_s;
    }
    return runs;
  }

  drawLines(context, color) {
    for (let index = this.spec.series.length - 1; index >= 0; index -= 1) { // the first lies on top
      this.drawLine(context, this.spec.series[index], color(this.colorName(index)));
    }
  }

  drawLine(context, series, stroke) {
    context.strokeStyle = stroke;
    context.fillStyle = stroke;
    context.lineWidth = 1.6;
    context.lineJoin = "round";
    for (const run of this.runs(series.read)) {
      context.beginPath();
      run.forEach(([x, y]) => context.lineTo(x, y));
      context.stroke();
      if (run.length === 1) context.fillRect(run[0][0] - 1.5, run[0][1] - 1.5, 3, 3);
    }
  }

  drawStack(context, color) {
    const sums = this.spec.series.map((_, last) => (point) => {
      const parts = this.spec.series.slice(0, last + 1).map((series) => series.read(point) ?? null);
      return parts.includes(null) ? null : parts.reduce((sum, part) => sum + part, 0);
    });
    for (let index = sums.length - 1; index >= 0; index -= 1) {
      context.fillStyle = color(this.colorName(index));
      for (const run of this.runs(sums[index])) {
        context.beginPath();
        context.moveTo(run[0][0], this.at.y(0));
        run.forEach(([x, y]) => context.lineTo(x, y));
        context.lineTo(run[run.length - 1][0] + 0.5, this.at.y(0));
        context.fill();
      }
    }
  }

  drawHover(context, plot, color) {
    const point = this.nearest();
    this.tip.hidden = !point || !this.isPointed;
    if (!point) return;
    const x = this.at.x(point.time_s);
    context.strokeStyle = color("--subdued");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x, plot.top);
    context.lineTo(x, plot.top + plot.height);
    context.stroke();
    if (this.isPointed) this.placeTip(point, x);
  }

  placeTip(point, x) {
    const figures = this.spec.series.map((series) => {
      const name = this.spec.series.length > 1 ? `${series.name} ` : "";
      return name + show(series.read(point), this.spec.format);
    });
    this.tip.textContent = [clock.format(point.time_s * 1000), ...figures].join("\n");
    const left = this.canvas.offsetLeft + x;
    const isRight = x > this.canvas.clientWidth / 2;
    this.tip.style.top = `${this.canvas.offsetTop + 4}px`;
    this.tip.style.left = isRight ? "auto" : `${left + 10}px`;
    this.tip.style.right = isRight ? `${this.figure.clientWidth - left + 10}px` : "auto";
  }
}
