// @vitest-environment jsdom
// SPDX-License-Identifier: Apache-2.0

import { cleanup, fireEvent, render, screen, waitFor, within } from '@testing-library/react';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Problem } from '../api/client';
import { actions, type Action, type Target } from './actions';
import { useActions } from './use-actions';

const client = { POST: vi.fn(), DELETE: vi.fn() };
vi.mock('../session/session', () => ({ useSession: () => ({ client }) }));

const job: Target = { kind: 'TrainJob', namespace: 'vision', name: 'train', status: 'Failed' };
const done = vi.fn();

function Page({ jobs }: { jobs: Target[] }) {
  const { start, dialogs } = useActions(done);
  return (
    <>
      {actions.map((action) => (
        <button key={action.id} onClick={() => start(action, jobs)}>
          {`Start ${action.id}`}
        </button>
      ))}
      {dialogs}
    </>
  );
}
const click = (action: Action['id'], jobs = [job]) => {
  render(<Page jobs={jobs} />);
  fireEvent.click(screen.getByText(`Start ${action}`));
};

beforeEach(() => {
  client.POST.mockResolvedValue({ data: { metadata: { name: 'train-retry-1' } } });
  client.DELETE.mockResolvedValue({});
});
afterEach(() => {
  cleanup();
  vi.clearAllMocks();
});

test.each<[Action['id'], string, Target[]]>([
  ['restart', 'Restart', [{ ...job, name: 'train-retry-1' }]],
  ['delete', 'Delete', []],
])('%s deletes the logs of the job: the page asks first', async (id, name, after) => {
  click(id);
  const dialog = within(await screen.findByRole('dialog', { name: `${name} train?` }));
  dialog.getByText(/its pods and their logs .*cannot be restored/);
  expect(client.POST.mock.calls.length + client.DELETE.mock.calls.length).toBe(0);
  fireEvent.click(dialog.getByRole('button', { name }));
  await waitFor(() => expect(done).toHaveBeenCalledWith(after));
});

test('a question can be answered with no', async () => {
  click('restart');
  fireEvent.click(within(await screen.findByRole('dialog')).getByRole('button', { name: 'Cancel' }));
  expect(screen.queryByRole('dialog')).toBeNull();
  expect(client.POST).not.toHaveBeenCalled();
});

test('suspending one job asks nothing, suspending two does', async () => {
  client.POST.mockResolvedValue({ data: { metadata: { name: 'train' } } });
  click('suspend');
  await waitFor(() => expect(done).toHaveBeenCalledWith([job]));
  cleanup();
  click('suspend', [job, { ...job, name: 'other' }]);
  await screen.findByRole('dialog', { name: 'Suspend 2 jobs?' });
});

test('a failure is shown, and the page stays', async () => {
  client.POST.mockRejectedValue(new Problem(409, 'the job has changed'));
  click('suspend');
  await screen.findByText('the job has changed');
  expect(done).not.toHaveBeenCalled();
});
