/** Items that would be placed above the upper edge of a scope (or below the lower one), where its pins are, unless tied to it. */
interface Link {
  from: number;
  to: number;
}

/** Return the items without operands that a layout free to choose would put above the layer of `pins`.
 *
 * `pins` count as layer 0. An item that depends on a pin has the layer of the longest path from the pins; any other is right above its users.
 */
export function looseAbove(count: number, links: readonly Link[], pins: ReadonlySet<number>): number[] {
  const uses = Array.from({ length: count }, (): number[] => []);
  const operands = new Int32Array(count);
  for (const link of links) {
    uses[link.from].push(link.to);
    operands[link.to] += 1;
  }
  const order = sorted(uses, operands);
  const depth = new Float64Array(count).fill(-1);
  for (const pin of pins) depth[pin] = 0;
  for (const item of order) {
    if (depth[item] >= 0) for (const user of uses[item]) depth[user] = Math.max(depth[user], depth[item] + 1);
  }
  const latest = Float64Array.from(depth, (at) => (at >= 0 ? at : -Infinity));
  for (const item of [...order].reverse()) {
    if (depth[item] < 0 && uses[item].length > 0) latest[item] = Math.min(...uses[item].map((user) => latest[user])) - 1;
  }
  return order.filter((item) => operands[item] === 0 && !pins.has(item) && latest[item] < 0);
}

/** The mirror image: items without users that would be placed below the pins of the lower edge. */
export function looseBelow(count: number, links: readonly Link[], pins: ReadonlySet<number>): number[] {
  return looseAbove(count, links.map(({ from, to }) => ({ from: to, to: from })), pins);
}

/** Return the items in an order of evaluation, without those in cycles. */
function sorted(uses: number[][], operands: Int32Array): number[] {
  const missing = Int32Array.from(operands);
  const order = uses.flatMap((_, item) => (missing[item] === 0 ? [item] : []));
  for (let at = 0; at < order.length; at++) {
    for (const user of uses[order[at]]) {
      missing[user] -= 1;
      if (missing[user] === 0) order.push(user);
    }
  }
  return order;
}
