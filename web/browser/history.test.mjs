// SPDX-License-Identifier: Apache-2.0

// The history in the dashboard. test/integration/server sets the environment: SERVER has a history
// with the records of MPIJobs in NAMESPACE: bert, which failed and is deleted, and gpt, whose pods
// are deleted. TOKEN is a user's who may see that namespace only.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { accessible, closeBrowser, newPage, screenshot, signIn } from './setup.mjs';

const server = { url: process.env.SERVER, token: process.env.TOKEN };
const namespace = process.env.NAMESPACE;
after(closeBrowser);

test('a deleted job is found in the history, with its log and events', async (t) => {
  const page = await newPage(t, server);
  await signIn(page, server, server.token, `/jobs/${namespace}/mpijobs/bert`);
  await page.getByText('Job bert not found').waitFor();
  await page.getByRole('link', { name: 'Show the record' }).waitFor();
  await accessible(page, 'deleted job with a record');
  await page.getByRole('link', { name: 'History', exact: true }).click();
  await page.getByLabel('Namespace').selectOption(namespace);
  await page.getByRole('grid', { name: 'Finished jobs' }).getByText('LauncherFailed').waitFor();
  await accessible(page, 'history');
  await screenshot(page, 'dashboard-history');
  await page.getByLabel('State').selectOption('Failed');
  await page.getByRole('link', { name: 'gpt' }).waitFor({ state: 'detached' });
  await page.getByRole('link', { name: 'bert' }).click();

  await page.getByRole('heading', { name: 'bert' }).waitFor();
  assert.ok(page.url().endsWith(`/history/${namespace}/mpijobs/${process.env.UID_OF_DELETED}`));
  await page.reload();
  await page.getByText('Why it failed').waitFor();
  await accessible(page, 'record of a failed job');
  await screenshot(page, 'dashboard-record');
  await page.getByRole('tab', { name: 'Logs' }).click();
  await page.getByRole('log').getByText('I am rank 0').waitFor();
  await page.getByText('3 lines, complete').waitFor();
  await page.getByLabel('Rank').selectOption('1');
  await page.getByRole('log').getByText('I am rank 0').waitFor({ state: 'detached' });
  await page.getByRole('log').getByText('<img src=x').waitFor();
  assert.equal(await page.evaluate(() => window.attacked), undefined);
  await accessible(page, 'log of a record');
  await page.getByRole('tab', { name: 'Events' }).click();
  await page.getByText('a node is slow').waitFor();
  await page.getByRole('tab', { name: 'Metrics' }).click();
  await page.getByText('No training metrics').waitFor();
  await accessible(page, 'metrics of a record');
  await page.getByRole('tab', { name: 'Configuration' }).click();
  await page.getByText('mpiReplicaSpecs').waitFor();

  await page.getByRole('button', { name: 'Clone' }).click();
  await page.getByRole('heading', { name: 'Create a training job' }).waitFor();
  await page.getByText('bert-copy').waitFor();
});

test('a job without pods leads to its record', async (t) => {
  const page = await newPage(t, server);
  await signIn(page, server, server.token, `/jobs/${namespace}/mpijobs/gpt?tab=logs`);
  await page.getByRole('link', { name: 'Show the record' }).click();
  await page.getByRole('tab', { name: 'Logs' }).click();
  await page.getByRole('log').getByText('done').waitFor();

  // Users who may delete jobs may delete records.
  await page.getByRole('button', { name: 'Delete record' }).click();
  await accessible(page, 'question before a record is deleted');
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('grid', { name: 'Finished jobs' }).getByRole('link', { name: 'bert' }).waitFor();
  assert.equal(await page.getByRole('link', { name: 'gpt' }).count(), 0);
});
