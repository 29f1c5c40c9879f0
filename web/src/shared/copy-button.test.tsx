// @vitest-environment jsdom
// SPDX-License-Identifier: Apache-2.0

import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import { afterEach, expect, test, vi } from 'vitest';
import type { TabProps } from '../job/job-tabs';
import ConfigurationTab from '../job/configuration-tab';

vi.mock('../create/yaml-editor', () => ({ YAMLEditor: () => null }));

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const text = 'apiVersion: v1\nkind: TrainJob\nmetadata:\n  name: train\n  namespace: vision\nspec: {}\n';
const copy = () => {
  render(<ConfigurationTab {...({ job: { apiVersion: 'v1', kind: 'TrainJob', metadata: { name: 'train', namespace: 'vision' }, spec: {} } } as unknown as TabProps)} />);
  fireEvent.click(screen.getByRole('button', { name: 'Copy' }));
};
/** browser copies what is selected, or refuses. */
const browser = (copies: boolean) => {
  const copied: string[] = [];
  document.execCommand = vi.fn(() => {
    copied.push((document.activeElement as HTMLTextAreaElement).value);
    return copies;
  });
  return copied;
};

test('the configuration is copied', async () => {
  const writeText = vi.fn(async () => {});
  vi.stubGlobal('navigator', { ...navigator, clipboard: { writeText } });
  copy();
  await screen.findByRole('button', { name: 'Copied' });
  expect(writeText).toHaveBeenCalledWith(text);
});

test('a page without a secure context copies, too', async () => {
  const copied = browser(true);
  copy();
  await screen.findByRole('button', { name: 'Copied' });
  expect(copied).toEqual([text]);
  expect(document.querySelector('textarea')).toBeNull();
});

test('a browser that does not copy is shown', async () => {
  browser(false);
  copy();
  await screen.findByRole('button', { name: 'Not copied: select the text' });
});
