// A run on a database: its users, the move of its disk, its points, tiles of machines.
function users(run) {
  const steps = run.charts.ramp;
  // Where a disk is moved or recovered, steps have names; as many users may come again.
  const cycles = run.charts.migration !== null || run.charts.chain !== null;
  const rows = steps.map((step, at) => [`${cycles ? step.name : step.users}${step.plateau && run.charts.migration === null ? " (plateau)" : ""}`, rate(step.nopm), rate(step.tpm),
    ...["p50", "p90", "p99", "max"].map((one) => nanos(step.transactions[0][one])),
    element("span", { class: `grade ${run.summary.points[at].grade}` }, text(run.summary.points[at].grade))]);
  const plateau = steps.find((step) => step.plateau) || steps[0];
  const kinds = plateau.transactions.map((one) => [one.name, rate(one.per_minute),
    ...["mean", "p50", "p90", "p99", "p99_9", "max"].map((figure) => nanos(one[figure]))]);
  const marked = [Plot.ruleX(steps.filter((step) => step.plateau), { x: "users", stroke: css("--soft"), strokeDasharray: "3 3" })];
  const x = { label: "users →", type: "log", ticks: steps.map((step) => step.users), tickFormat: "d" };
  const throughput = Plot.plot({ ...base(), width: half, height: 260, marginLeft: 60, grid: true, x,
    y: { label: "↑ NOPM", zero: true, tickFormat: "~s" },
    marks: [...marked, Plot.line(steps, { x: "users", y: "nopm", stroke: css("--blue") }),
      Plot.dot(steps, { x: "users", y: "nopm", stroke: css("--blue"), tip: true,
        title: (d) => `${d.users} users\n${rate(d.nopm)} NOPM, ${rate(d.tpm)} TPM` })] });
  const waits = steps.flatMap((step) => ["p50", "p90", "p99"].map((of) => ({ users: step.users, of, millis: step.transactions[0][of] })))
    .filter((one) => one.millis !== null).map((one) => ({ ...one, millis: one.millis / 1e6 }));
  const latency = Plot.plot({ ...base(), width: half, height: 260, marginLeft: 60, grid: true, x,
    y: { label: "↑ ms", type: "log", tickFormat: "~r" }, color: { legend: true },
    marks: [...marked, Plot.line(waits, { x: "users", y: "millis", stroke: "of" }),
      Plot.dot(waits, { x: "users", y: "millis", stroke: "of", tip: true })] });
  return [element("h2", {}, text("Users")),
    element("p", { class: "soft" }, text("NOPM: New-Orders a minute, TPM: all transactions a minute, both of what was committed. Times are those of New-Order, from its first attempt to its commit. This is no TPC-C result.")),
    table([cycles ? "step" : "users>", "NOPM>", "TPM>", "p50>", "p90>", "p99>", "max>", "trust"], rows),
    steps.length > 1 && !cycles ? element("div", { class: "pair" },
      figure("Orders by users. Dashed: the plateau, the last step that gained more than noise.", throughput),
      figure("Response time of New-Order by users.", latency)) : null,
    element("h3", {}, text(cycles ? `Of ${plateau.name}` : `With ${plateau.users} ${plateau.users === 1 ? "user" : "users"}`)),
    table(["transaction", "a minute>", "mean>", "p50>", "p90>", "p99>", "p99.9>", "max>"], kinds)];
}
function migration(run) {
  const found = run.charts.migration;
  if (!found) return null;
  const share = (value) => (value === null ? "–" : `${rate(value)} (${((100 * value) / found.baseline).toFixed(0)}%)`);
  const rows = [["it took", found.seconds === null ? found.failure ?? "it had not ended" : `${found.seconds.toFixed(1)} s`],
    ["gone over, holes among it", `${size(found.bytes)}${found.bytes_per_second === null ? "" : `, ${size(found.bytes_per_second)} a second`}`],
    ["before it", rate(found.baseline)], ["while it moved", share(found.during)], ["in the worst ten seconds", share(found.least)],
    ["under half of what was before", `${found.low_seconds} s`], ["after it", share(found.after)]];
  const marks = [["begins", found.began], ["alike", found.alike], ["moved", found.moved]].flatMap(([what, second]) => (second === null ? [] : [{ what, second }]));
  const plot = Plot.plot({ ...base(), width, height: 280, marginLeft: 60, grid: true,
    x: { label: "seconds →" }, y: { label: "↑ transactions a minute", zero: true, tickFormat: "~s" },
    marks: [Plot.ruleY([found.baseline, found.baseline / 2], { stroke: css("--soft"), strokeDasharray: "3 3" }),
      Plot.line(found.windows, { x: (d) => d.second + 5, y: "rate", stroke: css("--blue") }),
      Plot.ruleX(marks, { x: "second", stroke: css("--orange") }),
      // One below the other: a move may take a moment.
      ...marks.map((mark, at) => Plot.text([mark], { x: "second", text: "what", frameAnchor: "top", textAnchor: "start", dx: 4, dy: 4 + 14 * at }))] });
  return [element("h2", {}, text("The disk is moved")),
    element("p", { class: "soft" }, text(`To ${found.to}, by the mirror of QEMU ${found.front}'s storage daemon. Rates are transactions a minute.`)),
    table(["", ""], rows), figure("Windows of ten seconds, warm-ups among them. Dashed: the rate before the move, and half of it.", plot)];
}
function chain(run) {
  const found = run.charts.chain;
  if (!found) return null;
  const seconds = (value) => (value === null ? "never" : `${value.toFixed(2)} s`);
  const share = (value) => (value === null ? "–" : `${(value * 100).toFixed(0)}%`);
  const native = found.native ? [["native", "", "", "", "", "", `${found.native.users}`, rate(found.native.tpm), ""]] : [];
  const rows = found.points.map((one) => [one.name, seconds(one.recovered), seconds(one.mounted), seconds(one.started), seconds(one.first), seconds(one.native_again),
    one.plateau ? `${one.plateau.users}` : "–", one.plateau ? rate(one.plateau.tpm) : "–", share(one.share)]);
  const windows = found.points.flatMap((one) => one.windows.map(([second, value]) => ({ point: one.name, second, value })));
  const firsts = found.points.map((one) => ({ point: one.name, second: one.first }));
  const plot = Plot.plot({ ...base(), width, height: 280, marginLeft: 60, grid: true,
    x: { label: "seconds since the point was asked for →", zero: true }, y: { label: "↑ transactions a minute", zero: true, tickFormat: "~s" }, color: { legend: true, domain: found.points.map((one) => one.name) },
    marks: [found.native ? Plot.ruleY([found.native.tpm, 0.9 * found.native.tpm], { stroke: css("--soft"), strokeDasharray: "3 3" }) : null,
      Plot.line(windows, { x: "second", y: "value", stroke: "point" }),
      Plot.dot(firsts, { x: "second", y: () => 0, stroke: "point", symbol: "triangle", r: 5 })] });
  return [element("h2", {}, text("Recovered points")),
    element("p", { class: "soft" }, text(`${found.kept} points, kept by ${found.keeper}: ${seconds(found.keep_seconds)} each, ${seconds(found.keep_seconds_max)} at most, with some ${rate(found.change)} transactions between two. Times are since a point was asked for, rates transactions a minute.`)),
    found.neighbours.map((one) => element("p", { class: "soft" }, text(`Beside it ${one.profile} on ${one.target}: ${rate(one.iops)} I/Os a second, of ${rate(one.asked)}; mean ${nanos(one.mean)}, p99 ${nanos(one.p99)}${one.failure ? `; ${one.failure}` : ""}.`))),
    found.complaints.map((why) => element("p", { class: "missed" }, text(why))),
    table(["recovered", "disk>", "mounted>", "started>", "first order>", "90% of native>", "users>", "TPM>", "of native>"], [...native, ...rows]),
    windows.length ? figure("Windows of five seconds, warm-up and sample. Triangles: the first order. Dashed: the native rate, and nine tenths of it.", plot) : null];
}
function tiles(run) {
  const found = run.charts.tiles;
  if (!found) return null;
  const share = (value) => (value === null ? "–" : `${(value * 100).toFixed(2)}%`);
  const says = (value) => element("span", { class: value ? "met" : "missed" }, text(value === null ? "cannot be said" : value ? "yes" : "no"));
  const times = (one) => [rate(one.iops), share(one.within), time(one.mean), time(one.p99), time(one.max)];
  const shown = found.steps.find((step) => step.tiles === found.tiles) ?? found.steps[0];
  const of = (count, vms) => `${number.format(vms)} virtual machines (${count} ${count === 1 ? "tile" : "tiles"})`;
  const missed = found.steps.flatMap((step) => step.missed.map((why) => element("p", { class: "soft" }, text(`${step.tiles} ${step.tiles === 1 ? "tile" : "tiles"}: ${why}`))));
  return [element("h2", {}, text("Tiles")),
    element("p", {}, text(`${found.at_least ? "At least " : ""}${of(found.tiles, found.vms)}; with 99% of all I/Os within 20 ms: ${of(found.strict_tiles, found.strict_vms)}; ${found.ended}.`)),
    found.price.map((line) => element("p", {}, text(line))),
    found.scale < 1 ? element("p", { class: "soft" }, text(`Volumes are ${found.scale} of the published size, and places moved with it.`)) : null,
    table(["tiles>", "machines>", "I/Os a second>", "within 20 ms>", "mean>", "p99>", "max>", "passed", "99% within 20 ms"],
      found.steps.map((step) => [`${step.tiles}`, `${step.vms}`, ...times(step.all), says(step.passed), says(step.strict)])),
    missed,
    shown && shown.operations.length ? [element("h3", {}, text(`Beside ${of(shown.tiles, shown.vms)}`)),
      found.score === null ? null : element("p", {}, text(`Score ${found.score.toFixed(2)}: the smaller ratio to what is required. Their geometric mean: ${found.score_mean.toFixed(2)}.`)),
      table(["what", "done>", "required>", "ratio>", "mean of each step"], shown.operations.map((one) => [one.name, `${one.done}`, one.required.toFixed(2), one.ratio.toFixed(2),
        one.steps.map(([step, took]) => `${step} ${took === null ? "–" : `${took.toFixed(1)} s`}`).join(", ") + (one.failure ? `; ${one.failure}` : "")]))] : null,
    shown ? [element("h3", {}, text(`Applications of ${of(shown.tiles, shown.vms)}`)),
      table(["application", "machines>", "I/Os a second>", "within 20 ms>", "mean>", "p99>", "max>"], shown.applications.map((one) => [one.name, `${one.vms}`, ...times(one)])),
      machines(found)] : null,
    element("details", {}, element("summary", {}, text("The volumes of a tile")), table(["machine", "trace", "published>", "here>", "touched>"],
      found.plan.map((vm, at) => [vm.name, vm.trace, size(vm.published_bytes), size(vm.bytes), shown ? size(shown.machines[at].footprint_bytes) : "–"])))];
}
function machines(found) {
  const cells = found.steps.flatMap((step) => step.machines.map((one) => ({ ...one, step: `${step.tiles} ${step.tiles === 1 ? "tile" : "tiles"}` }))).filter((one) => one.mean !== null);
  if (!cells.length) return null;
  const most = Math.max(...found.steps.map((step) => step.tiles));
  const plot = Plot.plot({ ...base(), width, marginLeft: 90, marginRight: 60, padding: 0.06,
    x: { label: "tile", domain: d3.range(1, most + 1), tickFormat: "d" }, y: { label: null, domain: found.plan.map((vm) => vm.name) },
    fy: { label: null, domain: found.steps.map((step) => `${step.tiles} ${step.tiles === 1 ? "tile" : "tiles"}`) },
    height: 60 + found.steps.length * (found.plan.length * 17 + 16), color: { type: "log", scheme: "YlOrRd", label: "mean, ms", legend: true, tickFormat: "~r" },
    marks: [Plot.cell(cells, { x: "tile", y: "vm", fy: "step", fill: "mean", tip: true,
      title: (d) => `${d.vm}, tile ${d.tile} of ${d.step}\n${rate(d.iops)}/s, mean ${time(d.mean)}, p99 ${time(d.p99)}` })] });
  return figure("Each machine's mean response time, at each number of tiles. One that stands out was treated otherwise; one of which nothing was asked is left out.", plot);
}
