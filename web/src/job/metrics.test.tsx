// @vitest-environment jsdom
// SPDX-License-Identifier: Apache-2.0

import { cleanup, fireEvent, render, screen, within } from '@testing-library/react';
import { MemoryRouter } from 'react-router';
import { afterEach, describe, expect, test } from 'vitest';
import type { Job } from '../api/client';
import { chosenMetrics, pointsOf, rowsOf, summaryOf, valueOf } from './curves';
import { Curves } from './curves-part';
import { quantity, samplesOf, usageOf } from './usage';
import { UsageCharts } from './usage-charts';
import type { Curve, Usage } from './use-reports';

afterEach(cleanup);

const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString();
const curve = (name: string, values: number[], start = 0): Curve => ({ name, points: values.map((value, index) => ({ time: at(start + 10 * index), step: index * 5, value })) });

describe('curves', () => {
  test('are drawn over steps, or the time since the first report of the job', () => {
    const curves = [curve('loss', [2, 1], 30), curve('accuracy', [0.1], 10)];
    expect(pointsOf(curves, 'loss', 'step')).toEqual([{ x: 0, y: 2 }, { x: 5, y: 1 }]);
    expect(pointsOf(curves, 'loss', 'time')).toEqual([{ x: 20, y: 2 }, { x: 30, y: 1 }]);
    expect(pointsOf(curves, 'other', 'time')).toEqual([]);
  });
  test('without steps have no points over steps', () => {
    expect(pointsOf([{ name: 'loss', points: [{ time: at(0), value: 1 }] }], 'loss', 'step')).toEqual([]);
  });
  test('of two jobs have one table', () => {
    expect(rowsOf([[{ x: 0, y: 1 }, { x: 5, y: 2 }], [{ x: 5, y: 3 }, { x: 2, y: 4 }]])).toEqual([
      { x: 0, values: [1, undefined] },
      { x: 2, values: [undefined, 4] },
      { x: 5, values: [2, 3] },
    ]);
  });
  test('are chosen by the address; the first four without it', () => {
    const names = ['a', 'b', 'c', 'd', 'e'];
    expect(chosenMetrics(names, [])).toEqual(['a', 'b', 'c', 'd']);
    expect(chosenMetrics(names, ['e', 'deleted'])).toEqual(['e']);
  });
  test('have a summary for screen readers', () => {
    expect(summaryOf([{ x: 0, y: 2.30412 }, { x: 1, y: 0.00001 }])).toBe('2 values, from 2.304 to 1.00e-5, lowest 1.00e-5, highest 2.304');
    expect(summaryOf([])).toBe('no values');
  });
  test.each([
    [0, '0'],
    [12040.4, '12040'],
    [0.31274, '0.3127'],
    [-1e9, '-1.00e+9'],
  ])('%d is written as %s', (value, want) => expect(valueOf(value)).toBe(want));
});

describe('the charts', () => {
  const attack = '<img src=x onerror="window.attacked=1">';
  const show = (compared: Curve[] = [], address = '/?tab=metrics') =>
    render(
      <MemoryRouter initialEntries={[address]}>
        <Curves
          curves={[curve('loss', [2, 1]), curve(attack, [1, 2])]}
          name="train"
          others={[]}
          other={compared.length > 0 ? { key: 'before', label: 'before', isRunning: false, ref: { kind: 'TrainJob', plural: 'trainjobs', namespace: 'vision', name: 'before' } } : undefined}
          compared={compared}
        />
      </MemoryRouter>,
    );
  test('have a name and a summary; metrics are text', () => {
    show();
    expect(screen.getByRole('figure', { name: 'loss' }).querySelector('desc')?.textContent).toBe('train: 2 values, from 2 to 1, lowest 1, highest 2');
    expect(screen.getByRole('figure', { name: attack })).toBeTruthy();
    expect(document.querySelector('img')).toBeNull();
  });
  test('are compared with those of another job, also as tables', () => {
    show([curve('loss', [3, 2, 1])]);
    expect(within(screen.getByRole('list', { name: 'Legend' })).getAllByRole('listitem').map((item) => item.textContent)).toEqual(['train', 'before']);
    fireEvent.click(screen.getByRole('switch', { name: 'Show as tables' }));
    const table = screen.getByRole('grid', { name: 'loss' });
    expect(within(table).getAllByRole('row').map((row) => [...row.children].map((cell) => cell.textContent))).toEqual([
      ['Step', 'train', 'before'],
      ['0', '2', '3'],
      ['5', '1', '2'],
      ['10', '', '1'],
    ]);
  });
  test('are chosen, and drawn over time', () => {
    show([], '/?tab=metrics&metric=loss&axis=time');
    expect(screen.getAllByRole('figure')).toHaveLength(1);
    expect(screen.getByRole('button', { name: 'Time' }).getAttribute('aria-pressed')).toBe('true');
  });
});

describe('usage', () => {
  const samples = (...values: number[]) => values.map((value, index) => ({ timestamp: at(index), value }));
  const pod = { podName: 'w', index: 0, cpu: samples(3, 1), memory: samples(5), gpu: [], gpuMemory: [], networkTransmit: [], networkReceive: [] };
  const report: Usage = { source: 'prometheus', launcher: { ...pod, podName: 'l', index: null }, workers: [pod] };
  const job = (spec: Job['spec']): Job => ({ apiVersion: 'v1', kind: 'TrainJob', metadata: { name: 'train', namespace: 'vision' }, spec });

  test('has the latest value, the peak, and the limit or request of the job', () => {
    const [launcher, worker] = usageOf(report, job({ trainer: { image: 'a', resourcesPerNode: { requests: { cpu: '2', memory: '1Gi' }, limits: { cpu: '4' } } } }));
    expect(launcher?.values[0]).toEqual({ latest: 1, peak: 3 });
    expect(worker?.values.slice(0, 3)).toEqual([
      { latest: 1, peak: 3, limit: 4, limitName: 'limit' },
      { latest: 5, peak: 5, limit: 2 ** 30, limitName: 'request' },
      { latest: NaN, peak: -Infinity },
    ]);
  });
  test('over time begins with the first sample of the pod', () => {
    const late = { ...pod, memory: [{ timestamp: at(60), value: 1 }] };
    expect(samplesOf(late, 'memory')).toEqual([{ x: 60, y: 1 }]);
    expect(samplesOf(late, 'cpu')).toEqual([{ x: 0, y: 3 }, { x: 1, y: 1 }]);
  });
  test('over time has a chart for each resource with values, of the chosen pod', () => {
    const launcher = { ...pod, podName: 'l', index: null, networkReceive: samples(2048, 1024) };
    render(<UsageCharts report={{ ...report, launcher }} />);
    const charts = () => screen.getAllByRole('figure').map((figure) => figure.querySelector('desc')?.textContent);
    expect(charts()).toEqual(['Worker 0: 2 values, from 3.00 cores to 1.00 cores, lowest 1.00 cores, highest 3.00 cores']);
    fireEvent.change(screen.getByLabelText('Pod of the charts'), { target: { value: 'l' } });
    expect(charts()).toHaveLength(2);
  });
  test('of an MPIJob has the limits of its pod templates', () => {
    const spec = { mpiReplicaSpecs: { Worker: { template: { spec: { containers: [{ resources: { limits: { cpu: '500m' } } }] } } } } };
    expect(usageOf(report, job(spec)).map((one) => one.values[0]?.limit)).toEqual([undefined, 0.5]);
  });
  test.each([
    ['500m', 0.5],
    ['16Gi', 16 * 2 ** 30],
    ['1e3', 1000],
    [2, 2],
    ['2x', undefined],
    [undefined, undefined],
  ])('%s is the quantity %s', (text, want) => expect(quantity(text)).toBe(want));
});
