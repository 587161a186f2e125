/** The edges of one scope: between its items, from outside in, and out. They do not depend on what is open. */
import { nodesIn, type Scope, type Tree } from "./tree";

export interface Link {
  from: number;
  to: number;
  value: number;
}

export class Links {
  readonly between: Link[] = [];
  /** Incoming values with the items that use them; outgoing values with the item that computes them. */
  readonly incoming = new Map<number, Set<number>>();
  readonly outgoing = new Map<number, number>();
  private readonly position = new Map<string, number>();

  constructor(private readonly tree: Tree, private readonly scope: Scope) {
    scope.items.forEach((item, at) => {
      if (item.kind === "scope") this.position.set(`s${item.scope.id}`, at);
      else if (item.kind === "node") this.position.set(`n${item.node}`, at);
      else this.position.set(`${item.role}${item.value}`, at);
    });
    const seen = new Set<string>();
    for (const node of nodesIn(scope)) {
      if (node === scope.node) continue;
      const here = this.ofNode(node);
      for (const value of tree.graph.nodes[node].operands) if (value >= 0) this.use(value, here, seen);
      for (const value of tree.graph.nodes[node].results) if (value >= 0 && this.leaves(value)) this.outgoing.set(value, here);
    }
    for (const item of scope.items) if (item.kind === "value" && item.role === "output") this.use(item.value, this.position.get(`output${item.value}`) as number, seen);
    this.outputsBelow(seen);
  }

  /** Return the item that contains a node, or -1 if it is outside. */
  private ofNode(node: number): number {
    const own = this.tree.own.get(node);
    if (own !== undefined) return own === this.scope ? -1 : this.ofScope(own);
    return this.tree.home[node] === this.scope ? (this.position.get(`n${node}`) as number) : this.ofScope(this.tree.home[node]);
  }

  private ofScope(scope: Scope): number {
    const child = this.tree.childOf(this.scope, scope);
    return child === null ? -1 : (this.position.get(`s${child.id}`) as number);
  }

  private ofSource(value: number): number | null {
    const producer = this.tree.producer[value];
    if (producer >= 0) return this.ofNode(producer);
    const home = this.tree.inputHome.get(value);
    if (home === undefined) return null;
    return home === this.scope ? (this.position.get(`input${value}`) as number) : this.ofScope(home);
  }

  private use(value: number, to: number, seen: Set<string>): void {
    const from = this.ofSource(value);
    if (from === null || from === to) return;
    const key = `${from} ${to} ${value}`;
    if (seen.has(key)) return;
    seen.add(key);
    if (from >= 0) {
      this.between.push({ from, to, value });
      return;
    }
    const users = this.incoming.get(value) ?? new Set();
    this.incoming.set(value, users.add(to));
  }

  private leaves(value: number): boolean {
    const end = this.tree.outputHome.get(value);
    if (end !== undefined && !this.tree.isInside(end, this.scope)) return true;
    return this.tree.consumers[value].some((node) => this.ofNode(node) < 0);
  }

  /** An output within one child whose value comes from another child: the edge between the two. */
  private outputsBelow(seen: Set<string>): void {
    for (const [value, home] of this.tree.outputHome) {
      if (home === this.scope || !this.tree.isInside(home, this.scope)) continue;
      this.use(value, this.ofScope(home), seen);
    }
  }
}
