// Charts of a run, and of its points.
function curve(run) {
  const data = run.charts.curve;
  if (data.length < 2) return null;
  const plot = Plot.plot({ ...base(), width, height: 320, marginLeft: 60, grid: true,
    x: { label: "I/Os a second →", zero: true, tickFormat: "~s" }, y: { label: "↑ ms", type: "log", tickFormat: "~r" },
    color: { legend: true, domain: ["mean", "p99"], range: [css("--blue"), css("--orange")] },
    marks: ["mean", "p99"].flatMap((what) => [
      Plot.line(data, { x: "iops", y: what, z: (d) => d.step, stroke: () => what, sort: "iops" }),
      Plot.dot(data, { x: "iops", y: what, stroke: () => what, symbol: (d) => d.kind, tip: what === "p99",
        title: (d) => `${d.step}, ${d.label} (${d.kind}${d.knee ? ", the knee" : ""})\n${rate(d.iops)}/s, mean ${time(d.mean)}, p99 ${time(d.p99)}` }),
    ]).concat(Plot.text(data.filter((d) => d.knee), { x: "iops", y: (d) => d.p99 ?? d.mean, text: (d) => `knee: ${d.label}`, dy: -14,
      fill: css("--ink"), stroke: css("--paper"), strokeWidth: 5 })) });
  return [element("h2", {}, text("Throughput and latency")),
    figure("The knee, of each sweep, is the load with the most throughput for its response time: what lies right of it waits in queues.", plot)];
}
function cliff(run) {
  const data = run.charts.cliff;
  if (!data.length) return null;
  const plot = Plot.plot({ ...base(), width, height: 300, marginLeft: 60, grid: true,
    x: { label: "part of each volume that is used →", percent: true }, y: { label: "↑ I/Os a second", zero: true, tickFormat: "~s" },
    color: { legend: true },
    marks: [Plot.line(data, { x: "footprint", y: "iops", stroke: "step" }), Plot.dot(data, { x: "footprint", y: "iops", stroke: "step", tip: true })] });
  return [element("h2", {}, text("Working set")), figure("A fall shows where a cache ends.", plot)];
}
function timeline(point, unit, events) {
  const warm = point.timeline.filter((one) => one.second < 0);
  const shade = warm.length ? [Plot.rectX([{ from: warm[0].second, to: 0 }], { x1: "from", x2: "to", fill: css("--soft"), fillOpacity: 0.15 })] : [];
  const draw = (what, label, colour, options) => Plot.plot({ ...base(), width: half, height: 200, marginLeft: 60, grid: true,
    x: { label: "seconds →" }, y: { label, zero: true, ...options },
    marks: [...shade, Plot.ruleX(events, { x: "second", stroke: css("--ink"), strokeDasharray: "4 3" }),
      Plot.text(events, { x: "second", text: "what", frameAnchor: "top", dy: -12, textAnchor: "start", rotate: 0 }), Plot.line(point.timeline, { x: "second", y: what, stroke: css(colour), tip: true })] });
  return element("div", { class: "pair" },
    figure(`${unit} a second; what is shaded went before and is not counted.`, draw("iops", `↑ ${unit} a second`, "--blue", { tickFormat: "~s" })),
    figure("99th percentile of the response time of each second.", draw("p99", "↑ ms", "--orange", {})));
}
function spectra(point, unit) {
  const percentile = (d) => (d === 1 ? "0%" : `${+(100 - 100 / d).toPrecision(8)}%`);
  const spectrum = Plot.plot({ ...base(), width: half, height: 260, marginLeft: 60, grid: true,
    x: { type: "log", label: "percentile →", ticks: d3.range(0, 8).map((at) => 10 ** at).filter((at) => at <= d3.max(point.spectrum, (d) => d.one_in)), tickFormat: percentile },
    y: { type: "log", label: "↑ ms", tickFormat: "~r" },
    color: { legend: true, domain: ["response", "service"], range: [css("--orange"), css("--blue")] },
    marks: [Plot.line(point.spectrum.filter((d) => d.millis > 0), { x: "one_in", y: "millis", stroke: "of", tip: true })] });
  const cumulative = Plot.plot({ ...base(), width: half, height: 260, marginLeft: 60, grid: true,
    x: { type: "log", label: "ms →", tickFormat: "~r" }, y: { label: `↑ % of ${unit}`, percent: true, domain: [0, 100] },
    marks: [Plot.line(point.cumulative, { x: "within", y: "share", stroke: css("--blue"), curve: "step-after" }),
      Plot.ruleX([5, 20].filter((at) => at >= point.cumulative[0].within && at <= point.cumulative.at(-1).within), { stroke: css("--soft"), strokeDasharray: "3 3" })] });
  return element("div", { class: "pair" },
    figure(`How long the slowest took: where response lies above service, ${unit} waited before they were begun.`, spectrum),
    figure(`Share of ${unit} that took no longer. Dashed: 5 and 20 ms.`, cumulative));
}
function heat(run) {
  // Kinds of transactions are not alike, and tiles have a map of their own.
  if (isDatabase(run) || run.charts.tiles) return null;
  const cells = run.charts.points.flatMap((point) => point.streams.map((one) => ({ point: point.name, stream: `${one.stream}, ${one.side}`, p99: one.p99, iops: one.iops })));
  const streams = new Set(cells.map((cell) => cell.stream));
  if (streams.size < 4) return null;
  const plot = Plot.plot({ ...base(), width, marginLeft: 150, marginBottom: 90, padding: 0.04,
    x: { label: null, tickRotate: -30 }, y: { label: null }, color: { type: "log", scheme: "YlOrRd", label: "p99, ms", legend: true },
    marks: [Plot.cell(cells, { x: "point", y: "stream", fill: "p99", tip: true, title: (d) => `${d.stream}\n${d.point}\n${rate(d.iops)}/s, p99 ${time(d.p99)}` })] });
  return [element("h2", {}, text("Stream by stream")), figure("A stream that stands out from its like was treated otherwise.", plot)];
}
function events(run, point) {
  return run.charts.outages.filter((one) => one.point === point.name).flatMap((one) => [
    { second: one.struck, what: one.kind }, { second: one.restored, what: "back" },
    ...(one.answered === null ? [] : [{ second: one.answered, what: "" }])]);
}
