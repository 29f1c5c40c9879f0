// SPDX-License-Identifier: Apache-2.0

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { accessible, call, closeBrowser, createJob, namespace, newPage, replaceText, restartServer, rowOf, screenshot, signIn, slow, smallRuntime, startDashboard, startProxy, startServer, trainJob } from './setup.mjs';

let server;
before(async () => {
  server = await startServer();
});
after(async () => {
  await closeBrowser();
  await server?.stop();
});

test('sign in: a wrong token is refused, a right one is not', async (t) => {
  const page = await newPage(t, server);
  await signIn(page, server, 'wrong');
  await page.getByText('the token is invalid or expired').waitFor();
  await accessible(page, 'sign in');
  await screenshot(page, 'dashboard-sign-in');
  await signIn(page, server);
  await page.getByRole('heading', { name: 'Training jobs' }).waitFor();
  assert.ok(await page.evaluate((token) => !Object.values(localStorage).join().includes(token), server.token));
});

test('without the wish to stay signed in, the token is only in memory', async (t) => {
  const page = await newPage(t, server);
  await page.goto(server.url);
  await page.getByLabel('Token').fill(server.token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Training jobs' }).waitFor();
  const stored = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]));
  assert.ok(!stored.includes(server.token), stored);
  await page.reload();
  await page.getByLabel('Token').waitFor();
});

test('a proxy in front of the server signs in; no token is asked for', async (t) => {
  const proxy = await startProxy(server, server.token);
  t.after(proxy.stop);
  const page = await newPage(t, proxy);
  await page.goto(proxy.url);
  await page.getByRole('heading', { name: 'Training jobs' }).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Sign out' }).count(), 0);
  assert.equal(await page.evaluate(() => JSON.stringify({ ...sessionStorage, ...localStorage })), '{}');
  await page.getByRole('link', { name: 'Runtimes' }).click();
  await page.getByRole('gridcell', { name: 'mpi-openmpi-cpu', exact: true }).waitFor();
  await page.getByText('The connection is lost').waitFor({ state: 'detached' });

  await page.getByRole('link', { name: 'mpi-openmpi-cpu' }).click();
  await page.getByRole('button', { name: 'Validate' }).waitFor();

  // The session of the proxy ends.
  await page.context().clearCookies();
  await page.getByRole('button', { name: 'Validate' }).click();
  await page.getByRole('heading', { name: 'Your session has ended' }).waitFor();
  await accessible(page, 'session of a proxy that has ended');
  await page.getByRole('button', { name: 'Sign in again' }).click();
  await page.getByRole('navigation', { name: 'Areas' }).waitFor();
});

test('odh dashboard signs in by an address that is valid once', async (t) => {
  const dashboard = await startDashboard();
  t.after(dashboard.stop);
  const page = await newPage(t, dashboard);
  await page.goto(dashboard.url);
  await page.getByRole('heading', { name: 'Training jobs' }).waitFor();
  assert.ok(!page.url().includes('code='));
  await page.reload();
  await page.getByRole('heading', { name: 'Training jobs' }).waitFor();
  const other = await newPage(t, dashboard);
  await other.goto(dashboard.url);
  await other.getByText('was already used, or has expired').waitFor();
});

test('the list is live, and its filters are in the address', async (t) => {
  const page = await newPage(t, server);
  await createJob(server, trainJob('live-a', 'sleep 1', { spec: { suspend: true } }));
  await signIn(page, server);
  await rowOf(page, 'live-a').getByText('Suspended').waitFor(slow);
  await createJob(server, trainJob('live-b', 'sleep 1', { spec: { suspend: true } }));
  await rowOf(page, 'live-b').getByText('Suspended').waitFor(slow);
  await page.getByLabel('Search by name').fill('live-b');
  await page.getByRole('link', { name: 'live-a' }).waitFor({ state: 'detached', ...slow });
  await page.getByLabel('Status').selectOption('Suspended');
  assert.match(page.url(), /search=live-b&status=Suspended/);
  await page.reload();
  await rowOf(page, 'live-b').waitFor();
  assert.equal(await page.getByRole('link', { name: 'live-a' }).count(), 0);
  await page.getByLabel('Search by name').fill('no such job');
  await page.getByText('No jobs match the filters').waitFor();
  await accessible(page, 'no jobs match');
  await page.getByRole('button', { name: 'Clear all filters' }).first().click();

  // Several at once.
  await page.getByLabel('Search by name').fill('live-');
  await page.getByRole('link', { name: 'live-a' }).waitFor();
  await page.getByRole('checkbox', { name: 'Select all rows' }).check();
  await accessible(page, 'list of jobs');
  await page.getByRole('button', { name: 'Delete (2)' }).click();
  await accessible(page, 'question before jobs are deleted');
  // The message is shown for six seconds.
  const message = page.getByText('2 jobs are deleted').waitFor(slow);
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await message;
  await page.getByRole('link', { name: 'live-a' }).waitFor({ state: 'detached', ...slow });
  await page.getByRole('link', { name: 'live-b' }).waitFor({ state: 'detached', ...slow });
});

test('a job is created by the form, runs and succeeds, and its log is read', async (t) => {
  const page = await newPage(t, server);
  await signIn(page, server, server.token, '/create');
  await page.getByLabel('Name', { exact: false }).first().fill('Form!');
  await page.getByLabel('Namespace').fill(namespace);
  await page.getByLabel('Runtime').selectOption({ label: 'mpi-openmpi-cpu (OpenMPI)' });
  await page.getByLabel('Container image').fill(process.env.IMAGE);
  await page.getByLabel('Command').fill(`sh -c 'echo "hello from rank $OMPI_COMM_WORLD_RANK"; sleep 20'`);
  await page.getByLabel('CPU per worker').fill('20m');
  await page.getByLabel('Memory per worker').fill('32Mi');
  await accessible(page, 'form');
  await screenshot(page, 'dashboard-create');
  await page.getByRole('button', { name: 'Check' }).click();
  await page.getByText('The server does not accept the job').waitFor();
  await accessible(page, 'form with an error');
  await page.getByLabel('Name', { exact: false }).first().fill('form');
  await page.getByRole('button', { name: 'Check' }).click();
  await page.getByText('The job is valid').waitFor();

  // The YAML is the same document.
  await page.getByRole('tab', { name: 'YAML' }).click();
  await page.getByText('hello from rank').waitFor();
  await accessible(page, 'YAML');
  await page.locator('.cm-content').click();
  await page.keyboard.press('Control+End');
  await page.keyboard.type('alias: *unknown');
  await page.getByText('Unresolved alias').waitFor();
  await page.keyboard.press('Shift+Home');
  await page.keyboard.press('Backspace');
  await page.getByText('Unresolved alias').waitFor({ state: 'detached' });
  await page.getByRole('tab', { name: 'Form' }).click();
  await page.reload();
  await page.getByText('This is the draft that you have not submitted').waitFor();
  assert.equal(await page.getByLabel('Container image').inputValue(), process.env.IMAGE);
  await page.getByRole('button', { name: 'Create', exact: true }).click();

  await page.getByRole('heading', { name: 'form' }).waitFor();
  await page.getByText('Running', { exact: true }).first().waitFor(slow);
  await page.getByText('Succeeded', { exact: true }).first().waitFor(slow);
  await page.getByText('Slowest step of the start').waitFor(slow);
  await accessible(page, 'overview');
  await screenshot(page, 'dashboard-job');
  await page.getByRole('tab', { name: 'Logs' }).click();
  await page.getByRole('log').getByText('hello from rank 1').waitFor(slow);
  await page.getByLabel('Search in the log').fill('RANK 0');
  await page.locator('mark', { hasText: 'rank 0' }).waitFor();
  await accessible(page, 'logs');
  await page.getByRole('tab', { name: 'Pods' }).click();
  await page.getByText('Worker 1').waitFor();
  await accessible(page, 'pods');
  await page.getByRole('tab', { name: 'Events' }).click();
  await page.getByRole('grid', { name: 'Events' }).waitFor();
  await accessible(page, 'events');
  await page.getByRole('tab', { name: 'Configuration' }).click();
  await page.getByText('runtimeRef').waitFor();
  await accessible(page, 'configuration');
  await page.getByRole('button', { name: 'Clone' }).click();
  await page.getByRole('heading', { name: 'Create a training job' }).waitFor();
  assert.equal(await page.getByLabel('Name', { exact: false }).first().inputValue(), 'form-copy');
});

test('a draft is removed at sign-out', async (t) => {
  const page = await newPage(t, server);
  await signIn(page, server, server.token, '/create');
  await page.getByLabel('Name', { exact: false }).first().fill('draft');
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('Token').waitFor();
  assert.deepEqual(await page.evaluate(() => Object.keys(sessionStorage)), []);
});

test('a page of an older server is reloaded once when its files are missing', async (t) => {
  const page = await newPage(t, server);
  await signIn(page, server, server.token);
  await page.getByRole('heading', { name: 'Training jobs' }).waitFor();
  await page.route('**/assets/create-page-*.js', (route) => route.fulfill({ status: 404 }));
  const reloaded = page.waitForEvent('load');
  await page.getByRole('link', { name: 'Create job' }).click();
  await reloaded;
  await page.getByText('The page cannot be shown').waitFor();
  await page.getByRole('button', { name: 'Discard draft' }).waitFor();
  await accessible(page, 'page that cannot be loaded');
  await page.unroute('**/assets/create-page-*.js');
  await page.getByRole('button', { name: 'Reload' }).click();
  await page.getByRole('heading', { name: 'Create a training job' }).waitFor();
});

test('a job is suspended, resumed and deleted', async (t) => {
  const page = await newPage(t, server);
  await createJob(server, trainJob('pause', 'sleep 300'));
  await signIn(page, server, server.token, `/jobs/${namespace}/trainjobs/pause`);
  await page.getByText('Running', { exact: true }).first().waitFor(slow);
  await page.getByRole('button', { name: 'Suspend' }).click();
  await page.getByText('Suspended', { exact: true }).first().waitFor(slow);
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.getByText('Running', { exact: true }).first().waitFor(slow);
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('heading', { name: 'Training jobs' }).waitFor();
  await page.getByRole('link', { name: 'pause' }).waitFor({ state: 'detached', ...slow });
  await page.goto(`${server.url}/jobs/${namespace}/trainjobs/pause`);
  await page.getByText('Job pause not found').waitFor();
  await accessible(page, 'job that does not exist');
});

// What the browser would run if a text became HTML.
const attack = `<img src=x onerror="window.attacked=1"><script>window.attacked=2</script><a href="javascript:window.attacked=3">x</a>`;

test('a failed job shows its cause; texts of a job are never HTML', async (t) => {
  const page = await newPage(t, server);
  const script = `echo '${attack}'; if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then echo '${attack}' >&2; echo 'RuntimeError: loss is ${attack}' >&2; exit 3; fi; sleep 60`;
  await createJob(server, trainJob('attack', script, { metadata: { annotations: { note: attack } } }));
  await signIn(page, server);
  await rowOf(page, 'attack').getByText('Failed').waitFor(slow);
  await page.getByRole('link', { name: 'attack' }).click();
  const card = page.locator('.pf-v6-c-card', { hasText: 'Why it failed' });
  await card.getByText('TrainingError').waitFor(slow);
  await card.getByText('Exit code').waitFor();
  await card.getByText('Last lines of the program').waitFor(slow);
  await card.getByText('<img src=x').first().waitFor();
  await accessible(page, 'overview of a failed job');
  await screenshot(page, 'dashboard-failed');
  await card.getByRole('link', { name: 'Show them in the log' }).click();
  await page.getByRole('log').getByText('<script>').first().waitFor(slow);
  await page.locator('mark').first().waitFor();
  await screenshot(page, 'dashboard-logs');
  for (const tab of ['Pods', 'Events', 'Configuration']) {
    await page.getByRole('tab', { name: tab }).click();
    await page.getByRole('tabpanel').getByText(tab === 'Configuration' ? 'onerror' : /./).first().waitFor();
  }
  assert.equal(await page.evaluate(() => window.attacked), undefined);
  assert.equal(await page.locator('img, script:not([src]), a[href^="javascript"]').count(), 0);
  await page.getByRole('button', { name: 'Restart' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Restart' }).click();
  await page.getByRole('heading', { name: /^attack-retry-/ }).waitFor(slow);
});

test('a runtime is created, edited, validated and tested', async (t) => {
  const page = await newPage(t, server);
  await signIn(page, server, server.token, '/runtimes');
  await page.getByRole('gridcell', { name: 'mpi-openmpi-cpu', exact: true }).waitFor();
  await accessible(page, 'runtimes');
  await screenshot(page, 'dashboard-runtimes');

  // A runtime of the namespace, from the example, with a mistake first.
  await page.goto(`${server.url}/runtimes/new?namespace=${namespace}`);
  const editor = page.locator('.cm-content');
  await editor.click();
  await page.keyboard.press('Control+End');
  await page.keyboard.type('slots: 2');
  await page.getByRole('button', { name: 'Validate' }).click();
  await page.getByText('The runtime is not valid').waitFor();
  await page.getByText('unknown field').waitFor();
  await accessible(page, 'runtime with an error');
  await page.keyboard.press('Control+Home');
  const runtime = { apiVersion: 'kubeflow.org/v2alpha1', kind: 'TrainingRuntime', metadata: { name: 'mine', namespace }, spec: smallRuntime };
  await replaceText(page, JSON.stringify(runtime, null, 2));
  await page.getByRole('button', { name: 'Validate' }).click();
  await page.getByText('The runtime is valid').waitFor();
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByRole('heading', { name: 'mine' }).waitFor();

  await replaceText(page, JSON.stringify({ ...runtime, metadata: { ...runtime.metadata, labels: { edited: 'yes' } } }, null, 2));
  // Somebody else changes it meanwhile.
  const read = await call(server, 'GET', 'trainingruntimes/mine');
  await call(server, 'PUT', 'trainingruntimes/mine', { ...read, metadata: { ...read.metadata, annotations: { note: attack } } });
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('the object has been modified').waitFor();
  await page.reload();
  await page.getByText('onerror').waitFor();
  await replaceText(page, JSON.stringify({ ...runtime, metadata: { ...runtime.metadata, labels: { edited: 'yes' } } }, null, 2));
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('The runtime is saved').waitFor();
  assert.deepEqual((await call(server, 'GET', 'trainingruntimes/mine')).metadata.labels, { edited: 'yes' });
  await accessible(page, 'runtime');

  await page.getByRole('tab', { name: 'Test' }).click();
  await page.getByLabel('Container image').fill(process.env.IMAGE);
  await accessible(page, 'test of a runtime');
  await page.getByRole('button', { name: 'Test runtime' }).click();
  await page.getByText('Job accepted').waitFor();
  await page.getByText('The runtime works').waitFor(slow);
  await page.getByText('Every rank answered (2/2)').waitFor();
  await accessible(page, 'runtime that works');
  await screenshot(page, 'dashboard-runtime-test');
  await page.reload();
  await page.getByText('The runtime works').waitFor();
});

test('the cluster page has nodes, namespaces, and who waits for what', async (t) => {
  const page = await newPage(t, server);
  const resources = { requests: { cpu: '1000' } };
  await createJob(server, trainJob('too-large', 'sleep 1', { spec: { trainer: { ...trainJob('', 'sleep 1').spec.trainer, resourcesPerNode: resources } } }));
  t.after(() => call(server, 'DELETE', 'trainjobs/too-large'));
  await signIn(page, server, server.token, '/cluster');
  const waiting = page.getByRole('grid', { name: 'Waiting jobs' });
  // The page reads its numbers every 15 seconds.
  await waiting.getByRole('link', { name: 'too-large' }).waitFor(slow);
  await waiting.getByText('Insufficient cpu').first().waitFor(slow);
  await page.getByRole('grid', { name: 'Namespaces' }).getByRole('row').filter({ hasText: namespace }).waitFor();
  await page.getByRole('grid', { name: 'Nodes' }).getByText('Ready', { exact: true }).first().waitFor();
  await accessible(page, 'cluster');
  await screenshot(page, 'dashboard-cluster');
  await page.getByLabel('Time range').selectOption('7d');
  assert.match(page.url(), /range=7d/);
  await waiting.getByRole('link', { name: 'too-large' }).click();
  await page.getByRole('heading', { name: 'too-large' }).waitFor();
});

test('a user with few permissions chooses a namespace, and may not delete', async (t) => {
  const page = await newPage(t, server);
  await createJob(server, trainJob('seen', 'sleep 1', { spec: { suspend: true } }));
  await signIn(page, server, process.env.VIEWER);
  await page.getByText('You have no permission to see these jobs').waitFor();
  await accessible(page, 'no permission');
  await page.getByLabel('Show the jobs of one namespace').fill(namespace);
  await page.getByRole('button', { name: 'Show jobs' }).click();
  await rowOf(page, 'seen').waitFor();
  await page.getByRole('link', { name: 'seen' }).click();
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByText('1 of 1 jobs are not deleted').waitFor();
  await page.getByText(/cannot delete|may not delete/).waitFor();
  await accessible(page, 'refused action');
  await page.getByRole('dialog').getByRole('button', { name: 'Close' }).last().click();
  await page.getByRole('link', { name: 'Jobs', exact: true }).first().click();
  await page.getByText(`Only the jobs of namespace ${namespace}`).waitFor();
  await page.getByRole('button', { name: 'Show all namespaces' }).click();
  await page.getByText('You have no permission to see these jobs').waitFor();
  await page.getByRole('link', { name: 'Runtimes' }).click();
  await page.getByText('You have no permission to watch these jobs').waitFor();
});

test('a lost connection is shown; changes are not missed', async (t) => {
  // The server is really stopped. Its own token ends with it; that of a user does not.
  const first = await startServer();
  const page = await newPage(t, first);
  await createJob(server, trainJob('before', 'sleep 1', { spec: { suspend: true } }));
  await signIn(page, first, process.env.ADMIN);
  await rowOf(page, 'before').waitFor();
  await first.stop();
  await page.getByText('The connection is lost').waitFor();
  await accessible(page, 'lost connection');
  await createJob(server, trainJob('meanwhile', 'sleep 1', { spec: { suspend: true } }));
  await call(server, 'DELETE', 'trainjobs/before');
  const second = await restartServer(new URL(first.url).host);
  t.after(second.stop);
  await rowOf(page, 'meanwhile').waitFor(slow);
  await page.getByRole('link', { name: 'before' }).waitFor({ state: 'detached', ...slow });
  await page.getByText('The connection is lost').waitFor({ state: 'detached' });
  await screenshot(page, 'dashboard-jobs');
});
