// The dashboard page: opens the event stream while it is seen, keeps ten minutes of points, fills in the figures.
// `element` is the panel, given by Gradio. Texts from the server are only ever set as textContent.

const KEPT_POINTS = 1300; // more than ten minutes of samples, whatever the server's rhythm
const STALE_AFTER_S = 4;

class Dashboard {
  constructor(root) {
    this.root = root;
    this.points = [];
    this.row = null; // the newest full row
    this.isLost = false;
    this.staleSinceS = null;
    this.charts = new Map();
    this.gpuCards = new Map();
    for (const figure of root.querySelectorAll("figure[data-chart]")) {
      this.charts.set(figure.dataset.chart, this.chart(figure, this.chartSpecs()[figure.dataset.chart]));
    }
    this.tableRows = this.makeTable();
    this.role("table").closest("details").addEventListener("toggle", () => this.fillTable());
    this.isSeen = false;
    new IntersectionObserver((entries) => {
      this.isSeen = entries[entries.length - 1].isIntersecting;
      this.follow();
    }).observe(root);
    document.addEventListener("visibilitychange", () => this.follow());
    this.timer = setInterval(() => this.watch(), 1000);
  }

  chartSpecs() {
    const of = (name) => (point) => point[name] ?? null;
    const two = (first, second) => [{ name: first[0], read: of(first[1]) }, { name: second[0], read: of(second[1]) }];
    const one = (name, column) => [{ name, read: of(column) }];
    return {
      requests: { title: "Requests", format: "count", floor: 4, series: two(["running", "num_running"], ["waiting", "num_waiting"]) },
      output: { title: "Output tokens/s", format: "rate", floor: 10, series: one("output", "output_tokens_per_s") },
      prompt: { title: "Prompt tokens/s", format: "rate", floor: 10, series: one("prompt", "prompt_tokens_per_s") },
      first_token: { title: "Time to first token", format: "seconds", floor: 0.1, series: two(["p50", "ttft_p50_s"], ["p95", "ttft_p95_s"]) },
      between_tokens: { title: "Between tokens", format: "seconds", floor: 0.02, series: two(["p50", "inter_token_p50_s"], ["p95", "inter_token_p95_s"]) },
      hits: { title: "Cache hits, last minute", format: "percent", ceiling: () => 100, series: one("hits", "recent_hit_pct") },
      step: { title: "Time of a step", format: "seconds", floor: 0.02, series: one("step", "step_duration_s") },
      batch: { title: "Batch", format: "count", floor: 8, series: two(["requests", "step_num_requests"], ["tokens", "step_num_tokens"]) },
      pool: { title: "KV blocks", format: "count", stacked: true, floor: 16, series: two(["used", "num_blocks_in_use"], ["cached", "num_blocks_cached"]) },
      cpu: { title: "Processor", format: "percent", ceiling: () => 100, series: two(["this server", "process_cpu_pct"], ["all", "cpu_pct"]) },
      memory: { title: "Memory", format: "bytes", ceiling: () => this.row?.memory_total_bytes, series: two(["this server", "process_memory_bytes"], ["all", "memory_used_bytes"]) },
    };
  }

  gpuChartSpecs(index) {
    const of = (name) => (point) => point.gpus?.[index]?.[name] ?? null;
    const gpu = () => this.row?.gpus.find((found) => found.index === index);
    return {
      utilization: { title: "Busy", format: "percent", ceiling: () => 100, series: [{ name: "busy", read: of("utilization_pct") }] },
      memory: { title: "Memory", format: "bytes", floor: 2 ** 30, ceiling: () => gpu()?.memory_total_bytes, series: [{ name: "used", read: of("memory_used_bytes") }] },
      temperature: { title: "Temperature", format: "celsius", ceiling: () => 100, series: [{ name: "now", read: of("temperature_celsius") }] },
      power: { title: "Power", format: "watts", ceiling: () => gpu()?.power_limit_watts, floor: 100, series: [{ name: "now", read: of("power_watts") }] },
    };
  }

  role(name) {
    return this.root.querySelector(`[data-role="${name}"]`);
  }

  chart(figure, spec) {
    return new Chart(figure, spec, (time) => this.allCharts().forEach((chart) => chart.hover(time)));
  }

  allCharts() {
    return [...this.charts.values(), ...[...this.gpuCards.values()].flatMap((card) => card.charts)];
  }

  // --- the stream ---

  follow() {
    const isWanted = this.isSeen && !document.hidden && this.root.isConnected;
    if (isWanted && !this.source) this.open();
    if (!isWanted && this.source) this.close();
  }

  open() {
    const url = new URL("api/dashboard/stream", document.baseURI);
    if (this.points.length) url.searchParams.set("since", this.points[this.points.length - 1].time_s);
    this.source = new EventSource(url);
    this.heardAt = performance.now();
    this.staleSinceS = null;
    this.listen("history", (history) => this.addHistory(history));
    this.listen("sample", (row) => this.addRow(row));
    this.listen("engine", (engine) => this.showEngine(engine));
    this.listen("stale", ({ age_s }) => {
      this.staleSinceS = age_s;
    });
    this.source.addEventListener("error", () => {
      this.isLost = true;
      if (this.source?.readyState === EventSource.CLOSED) { // refused, not broken: the browser gives up, we do not
        this.close();
        this.reopenAt = performance.now() + 5000;
      }
      this.watch();
    });
  }

  listen(name, handle) {
    this.source.addEventListener(name, (event) => {
      this.isLost = false;
      handle(JSON.parse(event.data));
      this.watch();
    });
  }

  close() {
    this.source?.close();
    this.source = null;
  }

  watch() {
    if (!this.root.isConnected) {
      this.close();
      clearInterval(this.timer);
      return;
    }
    if (!this.source && this.reopenAt && performance.now() >= this.reopenAt) {
      this.reopenAt = null;
      this.follow();
    }
    if (!this.source && !this.isLost) return; // not looked at
    const silentS = Math.floor((performance.now() - this.heardAt) / 1000);
    const staleS = this.staleSinceS ?? silentS;
    const isLive = !this.isLost && staleS < STALE_AFTER_S;
    const pill = this.role("freshness");
    const text = this.isLost ? "Connection lost, trying again" : isLive ? "Live" : `Stale for ${staleS} s`;
    if (pill.textContent !== text) pill.textContent = text;
    pill.dataset.fresh = isLive ? "live" : "stale";
    this.root.dataset.fresh = pill.dataset.fresh;
  }

  // --- what came ---

  addHistory({ since_s, columns, gpus }) {
    const points = columns.time_s.map((_, at) => {
      const point = {};
      for (const [name, values] of Object.entries(columns)) point[name] = values[at];
      point.gpus = {};
      for (const [index, figures] of Object.entries(gpus)) {
        point.gpus[index] = {};
        for (const [name, values] of Object.entries(figures)) point.gpus[index][name] = values[at];
      }
      return point;
    });
    if (since_s === null) this.points = [];
    this.keep(points);
  }

  addRow(row) {
    this.heardAt = performance.now();
    this.staleSinceS = null;
    this.row = row;
    const gpus = {};
    for (const gpu of row.gpus) gpus[gpu.index] = gpu;
    this.keep([{ ...row, gpus }]);
    for (const node of this.root.querySelectorAll("[data-value]")) {
      const value = row[node.dataset.value];
      const text = show(value, node.dataset.format);
      if (node.textContent !== text) node.textContent = text;
      if ("alarm" in node.dataset) node.dataset.alarm = value > 0 ? "on" : "";
    }
    for (const part of this.root.querySelectorAll("[data-share]")) {
      const share = row.num_blocks ? (row[part.dataset.share] ?? 0) / row.num_blocks : 0;
      part.style.width = `${100 * share}%`;
      part.style.minWidth = share > 0 ? "3px" : "0"; // a few of many blocks are still seen
    }
    this.role("no-gpu").textContent = row.no_gpu_reason ?? "";
    this.showGpus(row.gpus);
    requestAnimationFrame(() => this.allCharts().forEach((chart) => chart.update(this.points)));
    this.fillTable();
  }

  keep(points) {
    for (const point of points) {
      const newest = this.points[this.points.length - 1];
      if (newest && point.time_s < newest.time_s - 60) this.points = []; // the server's clock was set back
      if (!newest || point.time_s > newest.time_s) this.points.push(point);
    }
    const end = this.points[this.points.length - 1]?.time_s ?? 0;
    this.points = this.points.filter((point) => point.time_s >= end - SPAN_S).slice(-KEPT_POINTS);
  }

  showEngine({ state, message, model }) {
    const names = { loading: "Loading the model", ready: "Ready", failed: "The model could not be loaded", stopped: "Stopped" };
    this.role("state").textContent = names[state] ?? state;
    this.root.querySelector(".dot").dataset.state = state;
    const banner = this.role("banner");
    banner.hidden = state === "ready" || !message;
    banner.dataset.state = state;
    banner.textContent = message;
    this.role("model").textContent = model ? this.modelLine(model) : "";
    this.role("pool-size").textContent = model ? this.poolLine(model) : "";
  }

  modelLine(model) {
    const parts = [model.name];
    if (model.num_parameters) parts.push(`${(model.num_parameters / 1e6).toFixed(0)} M parameters`);
    parts.push(`${model.device}, ${model.dtype}`, `KV ${model.kv_scheme}`);
    parts.push(`context ${whole.format(model.max_model_len)}`, `${model.attention_backend} attention`);
    return parts.join(" · ");
  }

  poolLine(model) {
    const bytes = model.num_blocks * model.block_size * model.kv_bytes_per_token;
    return `of ${model.block_size} tokens, ${show(bytes, "bytes")}`;
  }

  // --- GPUs ---

  showGpus(gpus) {
    const present = new Set(gpus.map((gpu) => gpu.index));
    for (const [index, card] of this.gpuCards) {
      if (present.has(index)) continue;
      card.node.remove();
      this.gpuCards.delete(index);
    }
    for (const gpu of gpus) {
      if (!this.gpuCards.has(gpu.index)) this.gpuCards.set(gpu.index, this.makeGpuCard(gpu.index));
      this.fillGpuCard(this.gpuCards.get(gpu.index).node, gpu);
    }
  }

  makeGpuCard(index) {
    const node = this.root.querySelector('template[data-role="gpu"]').content.firstElementChild.cloneNode(true);
    const specs = this.gpuChartSpecs(index);
    const figures = [...node.querySelectorAll("figure")];
    this.role("gpus").append(node);
    return { node, charts: figures.map((figure) => this.chart(figure, specs[figure.dataset.gpuChart])) };
  }

  fillGpuCard(node, gpu) {
    const part = (name) => node.querySelector(`[data-gpu="${name}"]`);
    const slowed = gpu.throttle_reasons === null ? DASH : gpu.throttle_reasons.join(", ") || "nothing";
    const clocks = `${show(gpu.sm_clock_mhz, "megahertz")}, memory ${show(gpu.memory_clock_mhz, "megahertz")}`;
    part("title").textContent = `GPU ${gpu.index}${gpu.name ? ` · ${gpu.name}` : ""}`;
    part("ours").hidden = gpu.is_ours !== true;
    part("lost").hidden = gpu.lost === null;
    part("lost").textContent = gpu.lost === null ? "" : `No figures: ${gpu.lost}.`;
    node.querySelector(".figures").hidden = gpu.lost !== null;
    part("clocks").textContent = gpu.sm_clock_mhz === null && gpu.memory_clock_mhz === null ? DASH : clocks;
    part("own").textContent = show(gpu.own_memory_bytes, "bytes");
    part("reserved").textContent = show(gpu.memory_reserved_bytes, "bytes");
    part("power-limit").textContent = show(gpu.power_limit_watts, "watts");
    part("processes").textContent = show(gpu.num_processes, "count");
    part("throttle").textContent = slowed;
  }

  // --- the table beside the charts ---

  makeTable() {
    const rows = [];
    for (const chart of this.charts.values()) {
      for (const series of chart.spec.series) {
        const node = create("tr");
        const name = chart.spec.series.length > 1 ? `${chart.spec.title}: ${series.name}` : chart.spec.title;
        const head = create("th", "", name);
        head.scope = "row";
        const cells = [create("td"), create("td"), create("td")];
        node.append(head, ...cells);
        rows.push({ node, cells, series, format: chart.spec.format });
      }
    }
    this.role("table").replaceChildren(...rows.map((row) => row.node));
    return rows;
  }

  fillTable() {
    if (!this.role("table").closest("details").open) return;
    for (const { cells, series, format } of this.tableRows) {
      const values = this.points.map(series.read).filter((value) => value !== null);
      const newest = this.points.length ? series.read(this.points[this.points.length - 1]) : null;
      const shown = values.length ? [newest, Math.min(...values), Math.max(...values)] : [null, null, null];
      cells.forEach((cell, at) => {
        cell.textContent = show(shown[at], format);
      });
    }
  }
}

new Dashboard(element.querySelector(".hearth-dashboard"));
