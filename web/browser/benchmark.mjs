// SPDX-License-Identifier: Apache-2.0

// Measures the list of jobs with many jobs: make bench-web. The benchmark in
// test/integration/server sets the environment: SERVER is the server, API the API server, TOKEN a
// token that may do everything, JOBS the number of jobs. The last line is the result, as JSON.
import { loadavg } from 'node:os';
import { closeBrowser, newContext } from './setup.mjs';

const { SERVER: server, API: api, TOKEN: token } = process.env;
const jobs = Number(process.env.JOBS);
const loads = 10;
const single = 50;
const changes = 10_000;
const kept = { 'trireme-token': JSON.stringify({ token, defaultNamespace: '' }) };

/** kubernetes calls the API server. */
async function kubernetes(method, path, body) {
  const response = await fetch(`${api}/apis/kubeflow.org/${path}`, {
    method,
    headers: { Authorization: `Bearer ${token}`, 'Content-Type': method === 'PATCH' ? 'application/merge-patch+json' : 'application/json' },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  await response.arrayBuffer();
}

const setStatus = (path, status) => kubernetes('PATCH', `${path}/status`, { status });

/** pathOf is the path of a job that the benchmark has created before: their kinds alternate. */
const pathOf = (number) => {
  const namespace = `namespaces/bench-${String(number % 20).padStart(2, '0')}`;
  const name = `job-${String(number).padStart(4, '0')}`;
  return Math.floor(number / 20) % 2 === 0 ? `v2alpha1/${namespace}/trainjobs/${name}` : `v2beta1/${namespace}/mpijobs/${name}`;
};

/** openList opens the list in a browser with an empty cache, and measures until its first rows are painted. */
async function openList() {
  const context = await newContext();
  await context.addInitScript((entries) => {
    for (const [name, value] of Object.entries(entries)) sessionStorage.setItem(name, value);
    const first = new MutationObserver(() => {
      if (!document.querySelector('tbody a[href^="/jobs/"]')) return;
      first.disconnect();
      requestAnimationFrame(() => setTimeout(() => (window.firstRows = performance.now())));
    });
    first.observe(document, { childList: true, subtree: true });
  }, kept);
  const page = await context.newPage();
  const session = await context.newCDPSession(page);
  // CPU time of the page's thread, which other programs of the machine hardly change.
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  await page.goto(server);
  const milliseconds = await page.waitForFunction(() => window.firstRows).then((handle) => handle.jsonValue());
  const { metrics } = await session.send('Performance.getMetrics');
  await session.detach();
  await page.getByText(new RegExp(`^${jobs} jobs$|^${jobs + 1} jobs$`)).waitFor();
  return { page, context, milliseconds, cpu: 1000 * metrics.find(({ name }) => name === 'TaskDuration').value };
}

/** untilShown changes the job at the top of the list, and measures until its row is painted with the new status, and until the API server answers. */
async function untilShown(page, number) {
  const status = number % 2 === 0 ? 'Pending' : 'Running';
  await page.evaluate((wanted) => {
    window.shown = new Promise((resolve) => {
      const row = () => document.querySelector('a[href$="/trainjobs/watched"]')?.closest('tr')?.textContent ?? '';
      const observer = new MutationObserver(() => {
        if (!row().includes(wanted)) return;
        observer.disconnect();
        requestAnimationFrame(() => setTimeout(() => resolve(Date.now())));
      });
      observer.observe(document.body, { childList: true, subtree: true, characterData: true });
    });
  }, status);
  const sent = Date.now();
  await setStatus('v2alpha1/namespaces/bench-00/trainjobs/watched', { phase: status });
  const written = Date.now() - sent;
  return { shown: (await page.evaluate(() => window.shown)) - sent, written };
}

/** changeMany changes all jobs in turn, a few at a time. */
async function changeMany(count) {
  let next = 0;
  const change = async () => {
    while (next < count) {
      const number = next++;
      await setStatus(pathOf(number % jobs), { readyWorkerCount: number % 3, readyWorkers: `${number % 3}/2`, trainerStatus: { progressPercentage: number % 100 } });
    }
  };
  await Promise.all(Array.from({ length: 8 }, change));
}

/** heapOf is what a tab keeps after all garbage is collected. */
async function heapOf(page) {
  const session = await page.context().newCDPSession(page);
  for (let i = 0; i < 3; i++) await session.send('HeapProfiler.collectGarbage');
  const { usedSize } = await session.send('Runtime.getHeapUsage');
  const { nodes } = await session.send('Memory.getDOMCounters');
  await session.detach();
  return { megabytes: usedSize / 1e6, nodes };
}

const quantile = (values, share) => [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))];
const shownOf = (samples) => samples.map(({ shown }) => shown);
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

const firsts = [];
const cpus = [];
for (let i = 0; i < loads; i++) {
  const { context, milliseconds, cpu } = await openList();
  firsts.push(milliseconds);
  cpus.push(cpu);
  await context.close();
}
console.log(`first rows, ms: ${firsts.map(Math.round).join(' ')}; CPU of the page until then: ${cpus.map(Math.round).join(' ')}; load of the machine: ${loadavg()[0].toFixed(1)}`);

await kubernetes('POST', 'v2alpha1/namespaces/bench-00/trainjobs', {
  apiVersion: 'kubeflow.org/v2alpha1',
  kind: 'TrainJob',
  metadata: { name: 'watched' },
  spec: { runtimeRef: { kind: 'ClusterTrainingRuntime', name: 'mpi-openmpi-cpu' }, trainer: { image: 'registry.example/train:1', numNodes: 2 } },
});
const { page } = await openList();
await page.getByRole('link', { name: 'watched' }).waitFor();
const quiet = [];
for (let i = 0; i < single; i++) {
  quiet.push(await untilShown(page, i));
  await pause(200);
}
console.log(`a change is shown, and written, ms: ${quiet.map(({ shown, written }) => `${shown}/${written}`).join(' ')}`);

// The first changes of each row allocate what is kept, such as its progress.
await changeMany(jobs);
await pause(3000);
const before = await heapOf(page);
const began = Date.now();
const busy = [];
let isDone = false;
const sampling = (async () => {
  for (let i = 0; !isDone; i++) {
    busy.push(await untilShown(page, i));
    await pause(500);
  }
})();
await changeMany(changes);
isDone = true;
const seconds = (Date.now() - began) / 1000;
await sampling;
await pause(3000);
const after = await heapOf(page);
console.log(`a change is shown, and written, while ${Math.round(changes / seconds)} jobs change per second, ms: ${busy.map(({ shown, written }) => `${shown}/${written}`).join(' ')}`);
console.log(`load of the machine: ${loadavg()[0].toFixed(1)}`);
console.log(`heap: ${before.megabytes.toFixed(1)} MB, after ${changes} changes ${after.megabytes.toFixed(1)} MB; nodes: ${before.nodes}, ${after.nodes}`);
await closeBrowser();

const result = {
  'first-rows-ms': quantile(firsts, 0.5),
  'first-rows-max-ms': Math.max(...firsts),
  'first-rows-cpu-ms': quantile(cpus, 0.5),
  'change-ms': quantile(shownOf(quiet), 0.5),
  'change-95%-ms': quantile(shownOf(quiet), 0.95),
  'busy-change-ms': quantile(shownOf(busy), 0.5),
  'busy-change-95%-ms': quantile(shownOf(busy), 0.95),
  'busy-changes/s': changes / seconds,
  'heap-before-MB': before.megabytes,
  'heap-after-MB': after.megabytes,
};
console.log(JSON.stringify(result));
