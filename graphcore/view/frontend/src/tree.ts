/** The tree of scopes: the graph, its layers, nodes with bodies, and sections of scopes that are too long to draw at once. */
import type { Graph } from "./model";
import { inSections, joinLayers } from "./sections";

export type Item = { kind: "node"; node: number } | { kind: "scope"; scope: Scope } | { kind: "value"; value: number; role: "input" | "output" };

export interface Scope {
  id: number;
  name: string;
  kind: "graph" | "layer" | "body" | "function" | "layers" | "section" | "node";
  parent: Scope | null;
  /** The node that this scope shows with its bodies, or -1. */
  node: number;
  items: Item[];
  /** Nodes inside, at any depth. */
  total: number;
}

/** More inputs (or outputs) than this are drawn next to their users, not in one row at the top. */
const MANY_ENDS = 8;

export class Tree {
  readonly scopes: Scope[] = [];
  readonly root: Scope;
  /** The node that computes a value, or -1. */
  readonly producer: Int32Array;
  readonly consumers: number[][];
  /** The scope in which a node is an item, and the scope that draws it if it has bodies. */
  readonly home: Scope[] = [];
  readonly own = new Map<number, Scope>();
  /** The scope in which an input is an item. */
  readonly inputHome = new Map<number, Scope>();
  readonly outputHome = new Map<number, Scope>();
  /** Identities of weights, which are drawn as the weights, each with its first user. */
  readonly folded = new Map<number, number>();

  constructor(readonly graph: Graph) {
    this.foldIdentities();
    this.producer = new Int32Array(graph.values.length).fill(-1);
    this.consumers = graph.values.map(() => []);
    graph.nodes.forEach((node, index) => {
      for (const value of node.results) if (value >= 0) this.producer[value] = index;
      if (!this.folded.has(index)) for (const value of new Set(node.operands)) if (value >= 0) this.consumers[value].push(index);
    });
    this.root = this.scope(graph.name, "graph", null, -1);
    const groups = this.placeGroups();
    graph.nodes.forEach((node, index) => {
      const home = groups[node.group] ?? this.root;
      this.home[index] = home;
      const own = this.own.get(index);
      if (own !== undefined) own.parent = home;
    });
    this.fillItems();
    this.placeEnds();
    this.placeResults(groups);
    for (const scope of [...this.scopes]) joinLayers(this, scope);
    for (const scope of [...this.scopes]) inSections(this, scope);
    this.count(this.root);
  }

  /** Let the users of an Identity of a weight read the weight; results of the graph and of bodies keep their Identity. */
  private foldIdentities(): void {
    const { nodes, values, groups, outputs } = this.graph;
    const kept = new Set([...outputs, ...groups.flatMap((group) => group.outputs ?? [])]);
    const identities = new Map<number, number>();
    nodes.forEach((node, index) => {
      node.operands = node.operands.map((value) => {
        const identity = identities.get(value);
        if (identity === undefined) return value;
        if (!this.folded.has(identity)) this.folded.set(identity, index);
        return nodes[identity].operands[0];
      });
      const kind = values[node.operands[0]]?.kind;
      if (node.op === "Identity" && node.domain === "" && (kind === "weight" || kind === "constant") && !kept.has(node.results[0])) identities.set(node.results[0], index);
    });
  }

  /** Return the node whose box shows a node. */
  shown(node: number): number {
    let at = node;
    while (this.folded.has(at)) at = this.folded.get(at) as number;
    return at;
  }

  scope(name: string, kind: Scope["kind"], parent: Scope | null, node: number): Scope {
    const scope: Scope = { id: this.scopes.length, name, kind, parent, node, items: [], total: 0 };
    this.scopes.push(scope);
    return scope;
  }

  /** Return the scopes around a node, outermost first. */
  path(scope: Scope): Scope[] {
    const scopes: Scope[] = [];
    for (let at: Scope | null = scope; at !== null; at = at.parent) scopes.unshift(at);
    return scopes;
  }

  /** Return the child of `outer` that contains `inner`, or null if `inner` is elsewhere. */
  childOf(outer: Scope, inner: Scope): Scope | null {
    let at = inner;
    while (at.parent !== null && at.parent !== outer) at = at.parent;
    return at.parent === outer ? at : null;
  }

  isInside(scope: Scope, outer: Scope): boolean {
    for (let at: Scope | null = scope; at !== null; at = at.parent) if (at === outer) return true;
    return false;
  }

  /** A body belongs to its node; a single body is drawn as the node. A function that several nodes call is drawn at the first call. */
  private placeGroups(): Scope[] {
    const groups = this.graph.groups.map((group) => this.scope(group.name, group.kind, null, -1));
    const taken = new Set<number>();
    this.graph.nodes.forEach((node, index) => {
      const mine = node.bodies.filter((body) => groups[body] !== undefined && !taken.has(body));
      if (mine.length === 0) return;
      const own = this.scope(node.name, "node", null, index);
      this.own.set(index, own);
      for (const body of mine) taken.add(body);
      if (mine.length === 1) {
        groups[mine[0]] = own;
        return;
      }
      for (const body of mine) {
        groups[body].parent = own;
        own.items.push({ kind: "scope", scope: groups[body] });
      }
    });
    this.graph.groups.forEach((group, index) => {
      if (!taken.has(index)) groups[index].parent = groups[group.parent] ?? this.root;
    });
    return groups;
  }

  /** Each scope lists its items in the order of their first node, which is an order of evaluation. */
  private fillItems(): void {
    const listed = new Set<Scope>([this.root]);
    for (const own of this.own.values()) for (const item of own.items) if (item.kind === "scope") listed.add(item.scope);
    const list = (scope: Scope): void => {
      if (listed.has(scope) || scope.parent === null) return;
      listed.add(scope);
      list(scope.parent);
      scope.parent.items.push({ kind: "scope", scope });
    };
    this.graph.nodes.forEach((_, index) => {
      if (this.folded.has(index)) return;
      const own = this.own.get(index);
      list(this.home[index]);
      if (own !== undefined) list(own);
      else this.home[index].items.push({ kind: "node", node: index });
    });
  }

  /** Inputs and outputs of the graph and of bodies become separate items. */
  private placeEnds(): void {
    const inputs = new Set(this.graph.inputs);
    this.graph.values.forEach((value, index) => {
      const loose = this.producer[index] < 0 && value.kind !== "weight" && value.kind !== "constant";
      if (loose && !inputs.has(index) && this.consumers[index].length > 0) this.placeInput(index, this.bodyAround(this.home[this.consumers[index][0]]));
    });
    const many = this.graph.inputs.length > MANY_ENDS;
    for (const index of [...inputs].reverse()) {
      const users = this.consumers[index].map((node) => this.home[node]);
      this.placeInput(index, many && users.length > 0 ? this.common(users) : this.root);
    }
    for (const index of new Set(this.graph.outputs)) {
      const from = this.producer[index];
      const home = this.graph.outputs.length > MANY_ENDS && from >= 0 ? this.home[from] : this.root;
      this.outputHome.set(index, home);
      const item: Item = { kind: "value", value: index, role: "output" };
      const after = home === this.root ? home.items.length : home.items.findIndex((other) => other.kind === "node" && other.node === from) + 1;
      home.items.splice(after > 0 ? after : home.items.length, 0, item);
    }
  }

  /** The results of bodies and functions become items in them. */
  private placeResults(groups: Scope[]): void {
    this.graph.groups.forEach((group, index) => {
      for (const value of group.outputs ?? []) {
        if (value < 0 || this.outputHome.has(value)) continue;
        this.outputHome.set(value, groups[index]);
        groups[index].items.push({ kind: "value", value, role: "output" });
      }
    });
  }

  private placeInput(value: number, home: Scope): void {
    this.inputHome.set(value, home);
    const users = new Set(this.consumers[value]);
    const first = home === this.root && this.graph.inputs.length <= MANY_ENDS ? 0 : home.items.findIndex((item) => item.kind === "node" && users.has(item.node));
    home.items.splice(Math.max(first, 0), 0, { kind: "value", value, role: "input" });
  }

  private bodyAround(scope: Scope): Scope {
    let at = scope;
    while (at.parent !== null && at.kind !== "body" && at.kind !== "function" && at.kind !== "node") at = at.parent;
    return at;
  }

  private common(scopes: Scope[]): Scope {
    let shared = this.path(scopes[0]);
    for (const scope of scopes.slice(1)) {
      const path = this.path(scope);
      shared = shared.filter((at, depth) => path[depth] === at);
    }
    return shared[shared.length - 1];
  }

  private count(scope: Scope): number {
    scope.total = scope.node >= 0 ? 1 : 0;
    for (const item of scope.items) scope.total += item.kind === "scope" ? this.count(item.scope) : item.kind === "node" ? 1 : 0;
    return scope.total;
  }
}

/** Return the nodes of a scope at any depth. */
export function nodesIn(scope: Scope): number[] {
  const nodes: number[] = scope.node >= 0 ? [scope.node] : [];
  for (const item of scope.items) {
    if (item.kind === "node") nodes.push(item.node);
    if (item.kind === "scope") for (const node of nodesIn(item.scope)) nodes.push(node);
  }
  return nodes;
}
