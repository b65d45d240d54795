/* The calls that returned what another call receives, found by dtype, shape, statistics and checksum of the target. */

const MARKS = ["NPU Dtype", "NPU Tensor Shape", "NPU max", "NPU min", "NPU mean", "NPU l2norm", "NPU MD5"];
const isModule = (key) => key.startsWith("Module.") || key.startsWith("Cell.");

/** Return a text that only equal tensors have in common; empty for what has no statistics. */
function markOf(row, columns) {
  const cells = columns.map((column) => rows.value(column, row));
  return /\[/.test(cells[1]) && cells.slice(2).some((cell) => cell !== "N/A" && cell !== "None" && cell !== "") && !/class/.test(cells[0]) ? cells.join("|") : "";
}

/** Return the last call before an op that returned the tensor of a row, APIs before modules; undefined for none. */
function producerOf(row) {
  const op = opOf(row);
  const columns = MARKS.map((header) => rows.column(header)).filter((column) => column >= 0);
  if (!op || columns.length < 3 || !/\.(input|parameters)\b/.test(nameOf(row).slice(op.key.length))) return undefined;
  const mark = markOf(row, columns);
  if (!mark) return undefined;
  let module;
  for (let number = op.number - 1; number >= 0; number--) {
    const before = ops[number];
    if (before.first < 0 || (module && isModule(before.key))) continue;
    for (let other = before.first; other <= before.last; other++) {
      if (rows.value(columns[0], other) !== rows.value(columns[0], row) || rows.value(columns[2], other) !== rows.value(columns[2], row)) continue;
      if (!/\.output\b/.test(rows.value(NAME, other)) || markOf(other, columns) !== mark) continue;
      if (!isModule(before.key)) return before;
      module = before;
      break;
    }
  }
  return module;
}
