// Tables of a run, and each of its points.
function verdict(run) {
  const summary = run.summary;
  const word = summary.verdict === "PASS" && summary.required.length === 0 ? "VALID" : summary.verdict;
  // Of a database's steps those beside the plateau may be void, and nothing rests on them.
  const plateau = isDatabase(run) ? run.charts.ramp.findIndex((step) => step.plateau) : -1;
  const valid = plateau < 0 ? "every figure is valid" : "the plateau is valid, whatever the steps beside it are";
  const says = {
    PASS: summary.required.length ? "Every requirement is met." : `Nothing was required; ${valid}.`,
    FAIL: "A requirement is not met.",
    INVALID: "What is marked as void allows no conclusion.",
    INCONCLUSIVE: "Too little was measured to say.",
  }[summary.verdict];
  const marks = [run.run.quick ? "quick: a sketch, and no result" : null,
    run.run.locked ? null : "the profile was modified: not to be held against others",
    run.run.cut_short ? "ended before its time" : null].filter(Boolean);
  const least = summary.required.map((one) => one.met.headroom).filter((one) => one !== null);
  const headroom = least.length && ["PASS", "FAIL"].includes(summary.verdict) ? ` Headroom ${(Math.min(...least) * 100).toFixed(0)}%.` : "";
  const rests = summary.required.length ? summary.required.map((one) => summary.points[one.point])
    : plateau < 0 ? summary.points : [summary.points[plateau]];
  const grade = rests.map((one) => one.grade).sort().at(-1);
  return element("section", { class: `verdict ${summary.verdict}` },
    element("strong", {}, text(word)),
    element("div", {}, element("p", {}, text(says + headroom)),
      grade ? element("p", {}, text("Trust in what it rests on: "), element("span", { class: `grade ${grade}` }, text(grade))) : null, marks.map((mark) => element("p", { class: "soft" }, text(mark)))));
}
function requirements(run) {
  if (!run.summary.required.length) return null;
  const beside = (run.summary.beside ?? []).map((one) => ({ ...one, beside: true }));
  const rows = [...run.summary.required, ...beside].map(({ point, met, beside }) => [
    beside ? `beside, deciding nothing: ${met.requirement}` : met.requirement, met.told, met.headroom === null ? "–" : `${(met.headroom * 100).toFixed(0)}%`,
    element("span", { class: met.met ? "met" : "missed" }, text(met.met === null ? "cannot be said" : met.met ? "met" : "not met")),
    run.summary.points[point].name,
  ]);
  return [element("h2", {}, text("What was required")), table(["requirement", "measured", "headroom>", "", "where"], rows)];
}
function figures(run) {
  if (isDatabase(run)) return users(run);
  const rows = run.charts.points.flatMap((point, at) => (point.together.length ? point.together : point.streams).map((one) => [
    point.name, `${one.stream}, ${one.side}`, one.load, rate(one.iops), `${size(one.bytes)}/s`,
    time(one.mean), time(one.p50), time(one.p99), time(one.p999), time(one.max), time(one.service),
    element("span", { class: `grade ${run.summary.points[at].grade}` }, text(run.summary.points[at].grade)),
  ]));
  return [element("h2", {}, text("Figures")),
    element("p", { class: "soft" }, text("Times are response times: of an open loop from the moment an I/O was meant to be issued, of a closed one from when there was room for it. Service, a mean, is what the storage took of that." +
      (run.charts.points.some((point) => point.together.length) ? " Streams that do the same on a volume each are one here." : ""))),
    table(["point", "stream", "loop", "IOPS>", "bytes>", "mean>", "p50>", "p99>", "p99.9>", "max>", "service>", "trust"], rows)];
}
function reduction(run) {
  const rows = run.charts.points.flatMap((point) => point.reduced.map((one) => [point.name, one.volume, size(one.held_bytes),
    `${one.dedupe_declared.toFixed(2)}:1`, `${one.dedupe.toFixed(2)}:1`, `${one.compression_declared.toFixed(2)}:1`, `${one.compression.toFixed(2)}:1`]));
  return rows.length ? [element("details", {}, element("summary", {}, text("How far what was written reduces")),
    element("p", { class: "soft" }, text("Of what the volumes hold after each point: blocks of 4 KiB for each different one, and bytes for each that LZ4 and zstd leave. A target that reduces data stores so much less at best.")),
    table(["point", "volume", "holds>", "duplicates declared>", "counted>", "compression declared>", "counted>"], rows))] : null;
}
function phases(run) {
  const rows = run.charts.tasks.map((task) => [task.name, { fill: "write", copy: "copy", check: "read and look at" }[task.kind] + ` ${task.what}`,
    time(task.seconds * 1000), size(task.bytes), (task.rate / 1e6).toFixed(1)]);
  return rows.length ? [element("h2", {}, text("Phases")), table(["phase", "did", "took>", "bytes>", "MB/s>"], rows)] : null;
}
function search(run) {
  const rows = run.charts.probes.map((one) => [`${one.outstanding}`, rate(one.iops), one.told,
    element("span", { class: one.kept ? "met" : "missed" }, text(one.kept ? "kept" : "not kept")), one.chosen ? "chosen" : ""]);
  return rows.length ? [element("h2", {}, text("Search for the best I/Os in flight")),
    element("p", { class: "soft" }, text(`Doubled until ${run.charts.probes[0].requirement} is not kept or nothing is gained, then halved between.`)),
    table(["in flight>", "I/Os a second>", "measured>", "", ""], rows)] : null;
}
function outages(run) {
  const seconds = (value) => (value === null ? "never" : `${value.toFixed(2)} s`);
  const found = (one, what) => (one.found ? number.format(what(one.found)) : "–");
  const rows = run.charts.outages.map((one) => [one.name, one.promise === "ack" ? "acknowledged" : "flushed", seconds(one.resume), seconds(one.silent),
    found(one, (f) => f.checked), found(one, (f) => f.lost), found(one, (f) => f.stale), found(one, (f) => f.misplaced + f.corrupt),
    found(one, (f) => f.gone_acknowledged), found(one, (f) => f.gone_flushed), found(one, (f) => f.torn)]);
  return rows.length ? [element("h2", {}, text("Outages")),
    element("p", { class: "soft" }, text("Sectors of 512 bytes, of every block afterwards and of what the load read. What is behind the acknowledged and not promised may be; torn are blocks of 4 KiB with old and new sectors, each of which may be what it is.")),
    table(["outage", "promised is what was", "to resume>", "silent>", "sectors>", "lost>", "stale>", "misplaced or corrupt>", "behind acknowledged>", "behind flushed>", "torn blocks>"], rows)] : null;
}
function costs({ generator, machine }) {
  const told = [generator === null ? null : `${time(generator / 1000)} of the load's threads`, machine === null ? null : `${time(machine / 1000)} of all processors of its machine`].filter((one) => one !== null);
  return told.length ? ` An I/O took ${told.join(", and ")}.` : "";
}
// Of several that make the load: one that stands out has another path to the target, or a machine that is too small.
function byWorker({ workers }) {
  if (!workers.length) return null;
  const rows = workers.flatMap(({ worker, streams }) => streams.map((one) => [worker, `${one.stream}, ${one.side}`, one.load,
    rate(one.iops), `${size(one.bytes)}/s`, time(one.mean), time(one.p50), time(one.p99), time(one.p999), time(one.max)]));
  return element("details", {}, element("summary", {}, text("Worker by worker")),
    table(["worker", "stream", "loop", "IOPS>", "bytes>", "mean>", "p50>", "p99>", "p99.9>", "max>"], rows));
}
function points(run) {
  return [element("h2", {}, text("Point by point")), run.charts.points.map((point, at) => {
    const judged = run.summary.points[at];
    const gates = judged.gates.map((gate) => [gate.name, element("span", { class: gate.state }, text(gate.state)), gate.why]);
    const kept = judged.fidelity.map((one) => [`${one.what} of ${one.stream}`, one.asked, one.delivered,
      element("span", { class: one.kept ? "pass" : "fail" }, text(one.kept ? "kept" : "not kept"))]);
    return element("section", {},
      element("h3", {}, text(`${point.name} `), element("span", { class: `grade ${judged.grade}` }, text(judged.grade))),
      element("p", { class: "soft" }, text(isDatabase(run) ? `${rate(point.iops)} transactions a second.` : `${rate(point.iops)} I/Os and ${size(point.bytes)} a second; the generator's busiest thread used ${(point.busy * 100).toFixed(0)}% of its time${point.machine ? `, the machine ${point.machine.min.toFixed(1)} to ${point.machine.max.toFixed(1)} processors, ${point.machine.mean.toFixed(1)} on average` : ""}.${costs(point.cpu)}`)),
      point.shares.length ? element("p", { class: "soft" }, text(`${point.shares.join("; ")}.`)) : null,
      point.timeline.length > 1 ? timeline(point, what(run), events(run, point)) : null,
      point.spectrum.length ? spectra(point, what(run)) : null,
      byWorker(point),
      element("details", {}, element("summary", {}, text("What speaks for and against it")),
        table(["rule", "", "why"], gates), kept.length ? table(["property", "asked", "delivered", ""], kept) : null));
  })];
}
function system(told) {
  if (!told) return [["behind the target", "not told: --system FILE says what these are the figures of"]];
  const sizes = ["memory", "cache", "usable"];
  const words = (name, value) => name === "price" ? `${value.total.toFixed(2)} ${value.currency} at the prices of ${value.date}` : sizes.includes(name) ? size(value) : `${value}`;
  return Object.entries(told).filter(([, value]) => value !== null && value !== "").map(([name, value]) => [`behind the target: ${name}`, words(name, value)]);
}
function bytes(space) {
  if (!space || (space.written === null && !space.physical.length)) return [];
  return [["bytes", [`logical ${size(space.logical)}`, ...(space.written === null ? [] : [`written ${size(space.written)}`]),
    ...space.physical.map((one) => one.bytes === null ? `physical not told by ${one.target}` : `physical ${size(one.bytes)} as ${one.target} tells`)].join(", ")]];
}
const chosen = (one) => (one.only?.length ? `, of its steps only '${one.only.join("', '")}'` : "");
const longer = (one) => chosen(one) + (one.least_seconds ? `, each load for ${one.least_seconds} s at least` : "");
function configuration(run) {
  const machine = Object.entries(run.run.machine).map(([name, value]) => [name, value]);
  return [element("h2", {}, text("What was run, and on what")),
    table(["", ""], [["profile", `${run.run.profile}${run.run.quick ? ", quick" : ""}${run.run.locked ? "" : ", modified"}${longer(run.run)}`],
      ["target", run.run.targets.join(", ")], [isDatabase(run) ? "database" : "volumes", size(run.run.bytes) + (run.run.scale ? `, ${run.run.scale.toFixed(4)} times the profile's` : "")], ...bytes(run.charts.space),
      ...(run.run.outages ? run.run.outages.outages.flatMap((one) => [[`${one.name}: strike`, element("code", {}, text(one.strike))], [`${one.name}: restore`, element("code", {}, text(one.restore))]]) : []), [isDatabase(run) ? "users at most" : "threads of the load", `${run.run.threads}`],
      ["read back and compared", run.run.verified ? "yes" : "no"], ["began", new Date(run.run.began * 1000).toISOString().replace(".000Z", " UTC").replace("T", " ")],
      ...system(run.run.system), ["version", run.run.version], ...machine, ["again", element("code", {}, text(run.run.reproduce))],
      ["raw data", element("code", {}, text(run.bundle || "not kept"))]]),
    element("details", {}, element("summary", {}, text("The profile")), element("pre", {}, text(run.profile)))];
}
