// @vitest-environment jsdom
// SPDX-License-Identifier: Apache-2.0

import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { act, cleanup, fireEvent, render, screen } from '@testing-library/react';
import { useState } from 'react';
import { afterEach, expect, test, vi } from 'vitest';
import { initial } from './document';
import { JobForm } from './job-form';

const client = { GET: vi.fn(async () => ({ data: { items: [] } })) };
vi.mock('../session/session', () => ({ useSession: () => ({ client }) }));

afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

function Page({ details = [] }: { details?: { field: string; reason: string }[] }) {
  const [text, setText] = useState(initial('vision'));
  return (
    <QueryClientProvider client={queries}>
      <JobForm text={text} onChange={setText} details={details} />
    </QueryClientProvider>
  );
}
const queries = new QueryClient();

test('an error of a resource is shown at its field', () => {
  render(<Page details={[{ field: 'spec.trainer.resourcesPerNode.requests[cpu]', reason: 'must not be negative' }]} />);
  const field = screen.getByRole('textbox', { name: 'CPU per worker' });
  expect(field.getAttribute('aria-invalid')).toBe('true');
  expect(document.getElementById(field.getAttribute('aria-describedby') ?? '')?.textContent).toContain('must not be negative');
  expect(screen.getByRole('textbox', { name: 'Memory per worker' }).getAttribute('aria-invalid')).toBe('false');
});

test('runtimes are read when the namespace has been typed, not with each key', async () => {
  vi.useFakeTimers();
  render(<Page />);
  await act(() => vi.advanceTimersByTimeAsync(1000));
  client.GET.mockClear();
  for (const namespace of ['s', 'sp', 'spe', 'speech']) {
    fireEvent.change(screen.getByRole('textbox', { name: 'Namespace' }), { target: { value: namespace } });
    await act(() => vi.advanceTimersByTimeAsync(100));
  }
  await act(() => vi.advanceTimersByTimeAsync(1000));
  expect(client.GET.mock.calls).toEqual([['/api/v1/namespaces/{namespace}/clustertrainingruntimes', { params: { path: { namespace: 'speech' } } }]]);
});
