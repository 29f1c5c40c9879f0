// @vitest-environment jsdom
// SPDX-License-Identifier: Apache-2.0

import { act, cleanup, fireEvent, render, screen } from '@testing-library/react';
import { useCallback, useState } from 'react';
import { MemoryRouter } from 'react-router';
import { afterEach, expect, test, vi } from 'vitest';
import type { Row } from '../api/client';
import { noFilters } from './filters';
import { JobsTable } from './jobs-table';
import { useActions } from './use-actions';

const client = {};
vi.mock('../session/session', () => ({ useSession: () => ({ client }) }));
// jsdom has no layout: all rows are in the document.
vi.mock('@tanstack/react-virtual', () => ({
  useVirtualizer: ({ count }: { count: number }) => ({ getVirtualItems: () => Array.from({ length: count }, (_, index) => ({ index, start: 0, end: 0 })), getTotalSize: () => 0 }),
}));
const rendered: string[] = [];
vi.mock('../shared/status', () => ({
  Status: ({ status }: { status: string }) => {
    rendered.push(status);
    return status;
  },
}));

afterEach(cleanup);

const row = (name: string, more: Partial<Row> = {}) => ({ kind: 'TrainJob', namespace: 'vision', name, status: `is ${name}`, creationTime: '2026-01-01T00:00:00Z', ...more }) as Row;

function Page({ rows }: { rows: Row[] }) {
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const { start, dialogs } = useActions(useCallback(() => setChosen(new Set()), []));
  return (
    <>
      <p>{chosen.size} chosen</p>
      <JobsTable rows={rows} filters={noFilters} onFilters={() => {}} chosen={chosen} onChosen={setChosen} onAction={start} />
      {dialogs}
    </>
  );
}
const page = (rows: Row[]) => (
  <MemoryRouter>
    <Page rows={rows} />
  </MemoryRouter>
);

test('only rows that change are rendered again', () => {
  const rows = [row('a'), row('b'), row('c')];
  const { rerender } = render(page(rows));
  rendered.length = 0;
  act(() => void fireEvent.click(screen.getByRole('checkbox', { name: 'Select row 1' })));
  screen.getByText('1 chosen');
  expect(rendered).toEqual(['is b']);
  rendered.length = 0;
  rerender(page([...rows.slice(0, 2), row('c', { status: 'has changed' })]));
  expect(rendered).toEqual(['has changed']);
});

test('the progress that the training has reported is in the row', () => {
  render(page([row('a', { trainerStatus: { progressPercentage: 42 } }), row('b')]));
  const bars = screen.getAllByRole('progressbar');
  expect(bars.map((bar) => [bar.getAttribute('aria-label'), bar.getAttribute('aria-valuenow')])).toEqual([['Progress of a', '42']]);
});
