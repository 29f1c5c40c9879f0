// SPDX-License-Identifier: Apache-2.0

// What the browser tests share: a real server, a real Chromium, and real jobs. test/web sets
// the environment: ODH is the program, KUBECONFIG the cluster, NAMESPACE a namespace for the
// jobs, VIEWER a token that may only view that namespace, SCREENSHOTS a folder or nothing.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer, request as forward } from 'node:http';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

export const namespace = process.env.NAMESPACE;
const image = process.env.IMAGE;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What depends on pods takes long on a busy machine: their start, their failure, their deletion. */
export const slow = { timeout: 180_000 };

/** start runs odh, and returns what it prints first, until a text is complete. */
function start(args, complete) {
  const process_ = spawn(process.env.ODH, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  return new Promise((resolve, reject) => {
    let [output, errors] = ['', ''];
    const fail = (why) => {
      clearTimeout(timer);
      reject(new Error(`odh ${args.join(' ')} ${why}\n${output}\n${errors}`));
    };
    const timer = setTimeout(() => {
      process_.kill('SIGKILL');
      fail('printed no address within a minute');
    }, 60_000);
    process_.stdout.on('data', (data) => {
      output += data;
      const found = complete.exec(output);
      if (!found) return;
      clearTimeout(timer);
      resolve({ process: process_, found });
    });
    // Read to the end of the process, which would wait otherwise. The last lines are enough.
    process_.stderr.on('data', (data) => (errors = (errors + data).slice(-20_000)));
    running.set(process_, () => errors);
    process_.on('error', (error) => fail(`was not started: ${error.message}`));
    process_.on('exit', (code) => fail(`exited with ${code}`));
  });
}

/** running are the servers, and what they have written to stderr. */
const running = new Map();

/** startServer runs odh server on an address; port 0 is a free one. */
export async function startServer(address = '127.0.0.1:0') {
  const { process: started, found } = await start(['server', '--address', address], /Serving at (http:\S+?)\. [^]*?\n\n {2}(\S+)\n/);
  return { url: found[1], token: found[2], stop: () => stop(started) };
}

/** restartServer runs odh server on the address of one that was stopped: another process may have its port for a moment. */
export async function restartServer(address) {
  for (let attempt = 0; ; attempt++) {
    try {
      return await startServer(address);
    } catch (error) {
      if (attempt === 10) throw error;
      await new Promise((resolve) => setTimeout(resolve, 3000));
    }
  }
}

/** startDashboard runs odh dashboard, and returns the address of the page. */
export async function startDashboard() {
  const { process: started, found } = await start(['dashboard', '--no-browser'], /(http:\S+#\S+)\n/);
  return { url: found[1], stop: () => stop(started) };
}

/**
 * startProxy is a reverse proxy that does what oauth2-proxy documents for --pass-authorization-header
 * and --api-route: it signs the user in with a cookie, and sends the user's token to the server.
 */
export async function startProxy(server, token) {
  const cookie = '_oauth2_proxy=signed-in';
  const proxy = createServer((request, response) => {
    if (request.url.startsWith('/oauth2/start')) return response.writeHead(302, { 'Set-Cookie': `${cookie}; HttpOnly; Path=/`, Location: '/' }).end();
    if (!request.headers.cookie?.includes(cookie)) {
      if (request.url.startsWith('/api/')) return response.writeHead(401, { 'Content-Type': 'application/json' }).end('{}');
      return response.writeHead(302, { Location: '/oauth2/start' }).end();
    }
    const headers = { ...request.headers, authorization: `Bearer ${token}` };
    const forwarded = forward(server.url + request.url, { method: request.method, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    forwarded.on('error', () => response.destroy());
    response.on('close', () => forwarded.destroy());
    return request.pipe(forwarded);
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const close = () => {
    proxy.closeAllConnections();
    proxy.close();
  };
  return { url: `http://127.0.0.1:${proxy.address().port}`, stop: close };
}

function stop(started) {
  running.delete(started);
  if (started.exitCode !== null || started.signalCode !== null) return Promise.resolve();
  return new Promise((resolve) => {
    started.removeAllListeners('exit');
    started.on('exit', resolve);
    started.kill('SIGTERM');
    setTimeout(() => started.kill('SIGKILL'), 20_000).unref();
  });
}

let browser;

/** newContext is a browser without cookies and cache. The certificate of a server of a test has no CA that the browser knows. */
export async function newContext(options = {}) {
  browser ??= await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-background-networking', '--disable-component-update', '--no-first-run'],
  });
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ignoreHTTPSErrors: true, ...options });
  context.setDefaultTimeout(30_000);
  return context;
}

/** newPage opens a page which fails the test if it does what it never must. It may send requests to its server, and to an issuer where a user signs in. */
export async function newPage(t, server, { alsoFrom = server.url, ...options } = {}) {
  const context = await newContext({ colorScheme: 'light', ...options });
  const page = await context.newPage();
  const wrong = [];
  const origins = [server.url, alsoFrom].map((url) => new URL(url).origin);
  page.on('pageerror', (error) => wrong.push(`error in the page: ${error.message}`));
  page.on('dialog', (dialog) => wrong.push(`dialog: ${dialog.message()}`));
  page.on('console', (message) => {
    if (/Content Security Policy|Trusted Type|unique "key"/i.test(message.text())) wrong.push(message.text());
  });
  page.on('request', (request) => {
    if (!origins.includes(new URL(request.url()).origin) && !/^(blob|data):/.test(request.url())) wrong.push(`request to another origin: ${request.url()}`);
  });
  t.after(async () => {
    const shown = t.passed === false ? await page.locator('body').innerText({ timeout: 5000 }).catch(() => 'nothing') : '';
    await context.close();
    if (t.passed === false) console.error(`${t.name}: the page showed\n${shown}\nservers:\n${[...running.values()].map((errors) => errors()).join('\n')}`);
    assert.deepEqual(wrong, []);
  });
  return page;
}

export const closeBrowser = () => browser?.close();

/** signIn gives the page a token, as a user does. */
export async function signIn(page, server, token = server.token, path = '/') {
  await page.goto(server.url + path);
  await page.getByLabel('Token').fill(token);
  await page.getByLabel('Keep me signed in until I close this tab').check();
  await page.getByRole('button', { name: 'Sign in' }).click();
}

/** accessible fails if axe finds a violation of WCAG 2.1 A or AA, in the light and in the dark theme. */
export async function accessible(page, name) {
  for (const theme of ['light', 'dark']) {
    await showTheme(page, theme);
    // Scripts of the page itself may not use eval; those of the test run in a world of their own.
    const violations = await inspect(page);
    assert.deepEqual(violations, [], `${name}, ${theme} theme`);
  }
  await showTheme(page, 'light');
}

/** showTheme changes the preference of the system, which the page follows: also what is not coloured by style sheets, as the editor. */
async function showTheme(page, theme) {
  await page.emulateMedia({ colorScheme: theme });
  await page.locator(theme === 'dark' ? 'html.pf-v6-theme-dark' : 'html:not(.pf-v6-theme-dark)').waitFor({ state: 'attached' });
  await transitions(page);
}

/** transitions waits until colours have changed; spinners turn without end. */
const transitions = (page) =>
  page.evaluate(() => Promise.all(document.getAnimations().filter((one) => one.effect.getTiming().iterations !== Infinity).map((one) => one.finished.catch(() => {}))));

async function inspect(page) {
  const session = await page.context().newCDPSession(page);
  const { frameTree } = await session.send('Page.getFrameTree');
  const { executionContextId } = await session.send('Page.createIsolatedWorld', { frameId: frameTree.frame.id });
  await session.send('Runtime.evaluate', { expression: axe, contextId: executionContextId });
  const { result, exceptionDetails } = await session.send('Runtime.evaluate', {
    expression: `axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})
      .then((found) => found.violations.map((one) => one.id + ': ' + one.nodes.map((node) => node.target.join(' ') + ' ' + node.failureSummary).join(' | ')))`,
    contextId: executionContextId,
    awaitPromise: true,
    returnByValue: true,
  });
  await session.detach();
  if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
  return result.value;
}

/** screenshot keeps a picture for the guide, if wanted. */
export async function screenshot(page, name) {
  if (!process.env.SCREENSHOTS) return;
  await transitions(page);
  await page.screenshot({ path: `${process.env.SCREENSHOTS}/${name}.png` });
}

/** call uses the API directly. */
export async function call(server, method, path, body, token = server.token) {
  const response = await fetch(`${server.url}/api/v1/namespaces/${namespace}/${path}`, {
    method,
    headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
    body: body && JSON.stringify(body),
  });
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${response.ok ? '' : await response.text()}`);
  return response.status === 204 ? undefined : response.json();
}

/** trainJob is a small job which runs a shell script in each rank. */
export function trainJob(name, script, more = {}) {
  const resources = { requests: { cpu: '20m', memory: '32Mi' } };
  return {
    apiVersion: 'kubeflow.org/v2alpha1',
    kind: 'TrainJob',
    metadata: { name, ...more.metadata },
    spec: {
      runtimeRef: { kind: 'ClusterTrainingRuntime', name: 'mpi-openmpi-cpu' },
      trainer: { numNodes: 2, slotsPerWorker: 1, image, command: ['sh', '-c', script], resourcesPerNode: resources },
      launcher: { resources },
      ...more.spec,
    },
  };
}

/** smallRuntime is the spec of a runtime for small jobs, with one slot a worker. */
const smallPod = (name, command) => ({ name, template: { spec: { containers: [{ name, command, resources: { requests: { cpu: '20m', memory: '32Mi' } } }] } } });
export const smallRuntime = {
  mlPolicy: { numNodes: 2, slotsPerWorker: 1, mpiImplementation: 'OpenMPI' },
  template: { spec: { replicatedJobs: [smallPod('launcher', ['mpirun', '--bind-to', 'none', '--map-by', 'slot']), smallPod('worker')] } },
};

/** replaceText pastes another document into the editor of a page: it would close brackets that are typed. */
export async function replaceText(page, text) {
  await page.locator('.cm-content').click();
  await page.keyboard.press('Control+A');
  await page.locator('.cm-content').evaluate((editor, pasted) => {
    const clipboardData = new DataTransfer();
    clipboardData.setData('text/plain', pasted);
    editor.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }));
  }, text);
}

export const createJob = (server, job) => call(server, 'POST', 'trainjobs', job);
export const rowOf = (page, name) => page.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) });
