// @vitest-environment jsdom
// SPDX-License-Identifier: Apache-2.0

import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { cleanup, fireEvent, render, screen, waitFor, within } from '@testing-library/react';
import { MemoryRouter } from 'react-router';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Problem } from '../api/client';
import { InHistory } from '../job/in-history';
import { useJob, useJobEvents, type JobRef } from '../job/use-job';
import { useCurves } from '../job/use-reports';
import { DeleteRecord } from './delete-record';
import HistoryPage from './history-page';
import { matching, merged, type PastRecord, type Summary } from './records';

const client = { GET: vi.fn(), DELETE: vi.fn() };
vi.mock('../session/session', () => ({ useSession: () => ({ client, defaultNamespace: '' }) }));
vi.mock('../live/live-jobs', () => ({
  useJobs: () => ({ rows: new Map([['a', { namespace: 'nlp' }], ['b', { namespace: 'vision' }]]) }),
  useLive: () => ({ namespace: '' }),
  useChanges: () => 0,
  useIsWatched: () => true,
}));

const summary = (name: string, more: Partial<Summary> = {}) =>
  ({ kind: 'TrainJob', namespace: 'vision', name, uid: `uid-${name}`, state: 'Succeeded', creationTime: '', startTime: '2026-01-01T00:00:00Z', finishTime: '2026-01-01T00:01:30Z', logLines: 1, ...more }) as Summary;
const record = {
  ...summary('bert'),
  job: { kind: 'TrainJob', metadata: { name: 'bert', namespace: 'vision' }, spec: {} },
  events: [{ type: 'Warning', reason: 'Slow', message: 'a node is slow', time: '2026-01-01T00:00:00Z', object: 'Pod/x', count: 2 }],
  curves: [{ name: 'loss', points: [] }],
} as unknown as PastRecord;
const reference: JobRef = { kind: 'TrainJob', plural: 'trainjobs', namespace: 'vision', name: 'bert', record: 'uid-bert' };

const show = (element: JSX.Element, address = '/') =>
  render(
    <MemoryRouter initialEntries={[address]}>
      <QueryClientProvider client={new QueryClient({ defaultOptions: { queries: { retry: false } } })}>{element}</QueryClientProvider>
    </MemoryRouter>,
  );

beforeEach(() => {
  client.GET.mockImplementation((path: string) =>
    Promise.resolve({ data: path.endsWith('{name}') ? record : { items: [path.includes('mpijobs') ? summary('gpt', { kind: 'MPIJob', state: 'Failed', failureReason: 'OOMKilled', finishTime: '2026-01-02T00:00:00Z' }) : summary('bert')], total: 3 } }),
  );
  client.DELETE.mockResolvedValue({});
});
afterEach(() => {
  cleanup();
  vi.clearAllMocks();
});

test('records of both kinds are in one list, the newest first', () => {
  const early = summary('early', { finishTime: '2026-01-01T00:00:00Z' });
  const late = summary('late', { finishTime: '2026-01-02T00:00:00Z' });
  expect(merged([{ items: [early], total: 5 }, { items: [late], total: 1 }])).toEqual({ items: [late, early], total: 6 });
  expect(matching([early, late], 'LA', '')).toEqual([late]);
  expect(matching([early, late], '', 'Failed')).toEqual([]);
});

test('the list has the records of a namespace; search and state are in the address', async () => {
  show(<HistoryPage />, '/history?namespace=vision');
  const rows = async () => within(await screen.findByRole('grid', { name: 'Finished jobs' })).getAllByRole('row').slice(1).map((row) => [...row.children].slice(0, 5).map((cell) => cell.textContent));
  expect(await rows()).toEqual([
    ['gpt', 'MPIJob', 'Failed', 'OOMKilled', '1d'],
    ['bert', 'TrainJob', 'Succeeded', '', '1m30s'],
  ]);
  screen.getByText('2 records; 4 older ones are not listed');
  expect(screen.getByRole('link', { name: 'gpt' }).getAttribute('href')).toBe('/history/vision/mpijobs/uid-gpt');
  fireEvent.change(screen.getByLabelText('State'), { target: { value: 'Succeeded' } });
  await waitFor(async () => expect((await rows()).map(([name]) => name)).toEqual(['bert']));
});

test('without a namespace, nothing is read', () => {
  show(<HistoryPage />);
  screen.getByRole('heading', { name: 'Choose a namespace' });
  expect(client.GET).not.toHaveBeenCalled();
});

test('a server without a history says so', async () => {
  client.GET.mockRejectedValue(new Problem(501, 'This server has no history of finished jobs', ['Ask a cluster administrator']));
  show(<HistoryPage />, '/history?namespace=vision');
  await screen.findByRole('heading', { name: 'There is no history' });
  screen.getByText('Ask a cluster administrator');
});

function Parts() {
  const parts = [useJob(reference).data?.metadata.name, useJobEvents(reference).data?.[0]?.reason, useCurves(reference, true).data?.[0]?.name];
  return <p>{parts.join(' ')}</p>;
}

test('job, events and curves of a record are read with one request', async () => {
  show(<Parts />);
  await screen.findByText('bert Slow loss');
  expect(client.GET.mock.calls).toEqual([['/api/v1/namespaces/{namespace}/history/trainjobs/{name}', { params: { path: { namespace: 'vision', name: 'uid-bert' } } }]]);
});

test('a job leads to its record, if there is one', async () => {
  show(<InHistory reference={{ ...reference, record: undefined }} nameOrUID="bert" />);
  expect((await screen.findByRole('link', { name: 'Show the record' })).getAttribute('href')).toBe('/history/vision/trainjobs/uid-bert');
  cleanup();
  client.GET.mockRejectedValue(new Problem(404, 'no record'));
  const { container } = show(<InHistory reference={{ ...reference, record: undefined }} nameOrUID="bert" />);
  await waitFor(() => expect(client.GET).toHaveBeenCalledTimes(2));
  expect(container.textContent).toBe('');
});

test('a server without a history is asked once', async () => {
  client.GET.mockRejectedValue(new Problem(501, 'This server has no history of finished jobs'));
  const jobs = ['a', 'b'].map((name) => ({ ...reference, name, record: undefined }));
  const queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  const show = (job: JobRef) => render(<QueryClientProvider client={queries}><InHistory reference={job} nameOrUID={job.name} /></QueryClientProvider>);
  for (const job of jobs) {
    show(job);
    await waitFor(() => expect(queries.isFetching()).toBe(0));
    cleanup();
  }
  expect(client.GET).toHaveBeenCalledTimes(1);
});

test('a record is deleted after a question; a refusal is shown', async () => {
  const done = vi.fn();
  show(<DeleteRecord reference={reference} onDone={done} />);
  const confirm = () => {
    fireEvent.click(screen.getByRole('button', { name: 'Delete record' }));
    fireEvent.click(within(screen.getByRole('dialog')).getByRole('button', { name: 'Delete' }));
  };
  client.DELETE.mockRejectedValueOnce(new Problem(403, 'you may not delete'));
  confirm();
  await screen.findByText('you may not delete');
  expect(done).not.toHaveBeenCalled();
  fireEvent.click(within(screen.getByRole('dialog')).getByRole('button', { name: 'Cancel' }));
  confirm();
  await waitFor(() => expect(done).toHaveBeenCalled());
});
