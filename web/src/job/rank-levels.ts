// SPDX-License-Identifier: Apache-2.0

import type { Schemas } from '../api/client';
import { duration, secondsBetween } from '../shared/time';

/** A rank with the cores that it uses: between the last two reports, or since it started. */
export interface RankView {
  id: string;
  rank: Schemas['Rank'];
  cores: number;
}

export interface RankReport {
  reportedTime: string | null;
  ranks: RankView[];
  unknownHosts: Schemas['UnknownHost'][];
}

/** withUsage adds to a report the cores that each rank uses, from the report before it. */
export function withUsage({ reportedTime, ranks, unknownHosts }: Schemas['JobRanks'], before?: RankReport): RankReport {
  const known = new Map(before?.ranks.map((view) => [view.id, view]));
  const seconds = reportedTime && before?.reportedTime ? secondsBetween(before.reportedTime, reportedTime) : 0;
  return {
    reportedTime,
    unknownHosts,
    ranks: ranks.map((rank) => {
      const id = `${rank.rank}/${rank.host}/${rank.pid}`;
      const last = known.get(id);
      const since = reportedTime ? secondsBetween(rank.started, reportedTime) : 0;
      let cores = since > 0 ? rank.cpuSeconds / since : 0;
      if (last) cores = seconds > 0 ? (rank.cpuSeconds - last.rank.cpuSeconds) / seconds : last.cores;
      return { id, rank, cores: Math.max(0, cores) };
    }),
  };
}

/** Lens is what the colour of a rank shows. */
export type Lens = 'state' | 'output' | 'cpu' | 'step';

export const lenses: [Lens, string][] = [
  ['state', 'State'],
  ['output', 'Last output'],
  ['cpu', 'CPU'],
  ['step', 'Step'],
];

/** Level is an entry of the legend: its letter is in each cell, so that colour is never the only sign. */
export interface Level {
  letter: string;
  name: string;
  color: 'green' | 'teal' | 'blue' | 'purple' | 'gray' | 'yellow' | 'orange' | 'danger';
}

const running: Level = { letter: 'R', name: 'Running', color: 'green' };
const sleeping: Level = { letter: 'S', name: 'Sleeping', color: 'purple' };
const stopped: Level = { letter: 'T', name: 'Stopped by a signal', color: 'danger' };
const exited: Level = { letter: 'Z', name: 'Exited', color: 'danger' };
const unknownState: Level = { letter: '?', name: 'Unknown state', color: 'gray' };

/** States are the letters of Linux in /proc. */
const states = new Map<string, Level>([
  ['R', running],
  ['S', sleeping],
  ['I', sleeping],
  ['D', { letter: 'D', name: 'Waiting for a disk or a device', color: 'orange' }],
  ['T', stopped],
  ['t', stopped],
  ['Z', exited],
  ['X', exited],
]);

/** What an examination has found; it is more than the state says. */
const doings = new Map<string, Level>([
  ['Computing', { letter: 'C', name: 'Computing', color: 'green' }],
  ['SpinningInMPI', { letter: 'M', name: 'Waiting in MPI', color: 'blue' }],
  ['Sleeping', sleeping],
  ['Stopped', stopped],
]);

const isDown = (level: Level) => level === stopped || level === exited;

export function stateLevel({ state, doing }: Schemas['Rank']): Level {
  const ofState = states.get(state) ?? unknownState;
  return isDown(ofState) ? ofState : (doings.get(doing ?? '') ?? ofState);
}

const colors = ['green', 'teal', 'yellow', 'orange'] as const;

const scale = (names: string[]): Level[] => names.map((name, index) => ({ letter: String(index + 1), name, color: colors[index] ?? 'orange' }));

const silence = [10, 60, 600];
const outputs = scale(['In the last 10 s', 'In the last minute', 'In the last 10 minutes', 'Longer ago']);
const noOutput: Level = { letter: '–', name: 'No output known', color: 'gray' };

const behind = [0, 1, 10];
const noStep: Level = { letter: '–', name: 'No step reported', color: 'gray' };

/** within is the level of a value: that of the first limit which it does not exceed, or the last one. */
const within = (levels: Level[], limits: number[], value: number) => {
  const index = limits.findIndex((limit) => value <= limit);
  return levels.at(index) as Level;
};

/** leveled returns how a lens shows a rank, and all levels for the legend. */
export function leveled(report: RankReport, lens: Lens): { of: (view: RankView) => Level; legend: Level[] } {
  switch (lens) {
    case 'state':
      return { of: (view) => stateLevel(view.rank), legend: [...new Set([...doings.values(), ...states.values(), unknownState])] };
    case 'output':
      return {
        of: ({ rank }) => (rank.lastOutput && report.reportedTime ? within(outputs, silence, secondsBetween(rank.lastOutput, report.reportedTime)) : noOutput),
        legend: [...outputs, noOutput],
      };
    case 'cpu': {
      const highest = Math.max(0, ...report.ranks.map((view) => view.cores));
      const limit = (part: number) => coresOf(part * highest);
      const levels = scale([`At least ${limit(0.75)}`, `At least ${limit(0.5)}`, `At least ${limit(0.25)}`, `Less than ${limit(0.25)}`]);
      return { of: ({ cores }) => within(levels, [0.25 * highest, 0.5 * highest, 0.75 * highest], highest - cores), legend: levels };
    }
    case 'step': {
      const highest = Math.max(0, ...report.ranks.map((view) => view.rank.step ?? 0));
      const levels = scale([`At step ${highest}, the highest`, '1 step behind', '2 to 10 steps behind', 'More than 10 steps behind']);
      return { of: ({ rank }) => (rank.step === null || rank.step === undefined ? noStep : within(levels, behind, highest - rank.step)), legend: [...levels, noStep] };
    }
  }
}

/** isOdd: the operator says that a stalled or slow job waits for the rank, or its process does not run. */
export function isOdd(rank: Schemas['Rank'], odd: Schemas['OddRank'][] = []): boolean {
  return isDown(stateLevel(rank)) || odd.some((one) => one.rank === rank.rank && (!one.host || one.host === rank.host));
}

/** letterOf is the letter of a rank, with a mark if it differs from the others. */
export const letterOf = (level: Level, odd: boolean) => level.letter + (odd ? '!' : '');

/** labelOf is the name of a cell for screen readers, and its title; it begins with what the cell shows. */
export function labelOf({ rank, cores }: RankView, lens: Lens, level: Level, reportedTime: string | null, odd: boolean): string {
  const value = {
    state: level.name,
    output: rank.lastOutput && reportedTime ? `last output ${duration(secondsBetween(rank.lastOutput, reportedTime))} ago` : noOutput.name,
    cpu: coresOf(cores),
    step: rank.step === null || rank.step === undefined ? noStep.name : `step ${rank.step}`,
  }[lens];
  return `${rank.rank} ${letterOf(level, odd)}: ${value} on ${rank.host}${odd ? ', differs from the others' : ''}`;
}

/** byHost groups the ranks by host, in the order of ranks. */
export function byHost(ranks: RankView[]): [string, RankView[]][] {
  const hosts = new Map<string, RankView[]>();
  for (const view of [...ranks].sort((a, b) => a.rank.rank - b.rank.rank)) {
    const { host } = view.rank;
    const others = hosts.get(host);
    if (others) others.push(view);
    else hosts.set(host, [view]);
  }
  return [...hosts];
}

export const coresOf = (cores: number) => `${cores >= 10 ? Math.round(cores) : cores.toFixed(2)} cores`;

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** bytesOf writes bytes as 1.5 GiB. */
export function bytesOf(bytes: number): string {
  const power = Math.min(units.length - 1, bytes >= 1 ? Math.floor(Math.log2(bytes) / 10) : 0);
  const value = bytes / 1024 ** power;
  return `${power === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[power]}`;
}
