// @vitest-environment jsdom
// SPDX-License-Identifier: Apache-2.0

import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { act, cleanup, fireEvent, render, screen } from '@testing-library/react';
import { MemoryRouter } from 'react-router';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Problem } from '../api/client';
import CreatePage from './create-page';

const client = { GET: vi.fn(), POST: vi.fn() };
vi.mock('../session/session', () => ({ useSession: () => ({ client, defaultNamespace: 'vision' }) }));
vi.mock('../live/live-jobs', () => ({ useChanges: () => 0, useIsWatched: () => true }));
vi.mock('./yaml-editor', () => ({ YAMLEditor: ({ value }: { value: string }) => <pre>{value}</pre> }));

const source = { apiVersion: 'kubeflow.org/v2alpha1', kind: 'TrainJob', metadata: { name: 'train', namespace: 'speech' }, spec: { runtimeRef: { name: 'mpi' }, trainer: { image: 'registry/source:1' } } };
let jobs: () => Promise<unknown>;
let queries: QueryClient;

beforeEach(() => {
  jobs = async () => ({ data: source });
  client.GET.mockImplementation((path: string) => (path.endsWith('runtimes') ? Promise.resolve({ data: { items: [] } }) : jobs()));
});
afterEach(() => {
  cleanup();
  sessionStorage.clear();
  vi.clearAllMocks();
});

/** open loads the page; a second time is a reload. */
const open = async (address: string) => {
  cleanup();
  queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  await act(async () => {
    render(
      <QueryClientProvider client={queries}>
        <MemoryRouter initialEntries={[address]}>
          <CreatePage />
        </MemoryRouter>
      </QueryClientProvider>,
    );
  });
};
const value = async (label: string) => ((await screen.findByRole('textbox', { name: label })) as HTMLInputElement).value;
const type = async (label: string, text: string) => fireEvent.change(await screen.findByRole('textbox', { name: label }), { target: { value: text } });
const hasDraft = () => screen.queryByText('This is the draft that you have not submitted') !== null;

const clone = '/create?clone=speech/trainjobs/train';
const runtime = '/create?runtime=TrainingRuntime/mine&namespace=speech';

describe('a draft', () => {
  test.each(['/create', clone, runtime])('of %s survives a reload', async (address) => {
    await open(address);
    expect(hasDraft()).toBe(false);
    await type('Container image', 'registry/edited:2');
    await open(address);
    expect(await value('Container image')).toBe('registry/edited:2');
    expect(hasDraft()).toBe(true);
  });

  test('of a copy survives that the job is deleted', async () => {
    await open(clone);
    await type('Container image', 'registry/edited:2');
    jobs = () => Promise.reject(new Problem(404, 'not found'));
    await open(clone);
    expect(await value('Container image')).toBe('registry/edited:2');
  });

  test('is not shown on a page that begins something else', async () => {
    await open('/create');
    await type('Container image', 'registry/edited:2');
    await open(clone);
    expect(await value('Container image')).toBe('registry/source:1');
    await open(runtime);
    expect(await value('Container image')).toBe('');
    await open('/create');
    expect(await value('Container image')).toBe('registry/edited:2');
  });

  test.each([
    ['/create', 'vision', ''],
    [clone, 'speech', 'registry/source:1'],
    [runtime, 'speech', ''],
  ])('of %s is discarded by Start over', async (address, namespace, image) => {
    await open(address);
    await type('Container image', 'registry/edited:2');
    await open(address);
    await screen.findByText('This is the draft that you have not submitted');
    fireEvent.click(screen.getByRole('button', { name: 'Start over' }));
    expect(await value('Namespace')).toBe(namespace);
    expect(await value('Container image')).toBe(image);
    expect(hasDraft()).toBe(false);
    await open(address);
    expect(await value('Container image')).toBe(image);
  });
});

test('a copy stays when its job can no longer be read', async () => {
  await open(clone);
  await type('Container image', 'registry/edited:2');
  jobs = () => Promise.reject(new Problem(404, 'not found'));
  await act(() => queries.invalidateQueries());
  expect(await value('Container image')).toBe('registry/edited:2');
});

test('a job that cannot be copied is an error', async () => {
  jobs = () => Promise.reject(new Problem(403, 'no permission'));
  await open(clone);
  await screen.findByText('no permission');
});
