// SPDX-License-Identifier: Apache-2.0

// All pages without a mouse, and at 200 % zoom. test/integration/server sets the environment: SERVER,
// TOKEN, which may do everything, and NAMESPACE, which has the TrainJobs train, which runs, and
// failed, and the TrainingRuntime mine.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { accessible, closeBrowser, newPage, signIn } from './setup.mjs';

const server = { url: process.env.SERVER, token: process.env.TOKEN };
const namespace = process.env.NAMESPACE;
after(closeBrowser);

/** Each page, and a text that it has when it is complete. */
const pages = [
  { name: 'jobs', path: '/jobs', text: 'train' },
  ...['Overview', 'Pods', 'Ranks', 'Logs', 'Metrics', 'Events', 'Configuration'].map((tab) => ({
    name: `job, ${tab}`,
    path: `/jobs/${namespace}/trainjobs/failed${tab === 'Overview' ? '' : `?tab=${tab.toLowerCase()}`}`,
    text: tab === 'Overview' ? 'Why it failed' : tab,
  })),
  { name: 'create, form', path: '/create', text: 'Container image' },
  { name: 'create, YAML', path: `/create?clone=${namespace}/trainjobs/train`, text: 'Copy as YAML' },
  { name: 'history', path: `/history?namespace=${namespace}`, text: 'There is no history' },
  { name: 'runtimes', path: `/runtimes?namespace=${namespace}`, text: 'mine' },
  { name: 'runtime', path: `/runtimes/namespaces/${namespace}/mine`, text: 'Validate' },
  { name: 'new runtime', path: `/runtimes/new?namespace=${namespace}`, text: 'Validate' },
  { name: 'cluster', path: '/cluster', text: 'Waiting jobs' },
];

/** open shows a page. The user is signed in, so that a page can be loaded by its address. */
async function open(page, { path, text }) {
  await page.goto(server.url + path);
  await page.getByText(text).filter({ visible: true }).first().waitFor();
  await page.waitForFunction(() => !document.querySelector('[role=progressbar][aria-label^=Loading]'));
}

/** newDescribedPage is a page that can say which element this is. */
async function newDescribedPage(t, options) {
  const page = await newPage(t, server, options);
  await page.addInitScript(() => {
    window.describeElement = (element) => `${element.tagName.toLowerCase()} "${(element.getAttribute('aria-label') || element.textContent || element.id || '').trim().slice(0, 40)}"`;
  });
  return page;
}

/** stopsOf are the elements that Tab should reach: what can be used, and is shown. */
const stopsOf = (page) =>
  page.evaluate(() => {
    const focusable = 'a[href], button:not(:disabled), input:not(:disabled):not([type=hidden]), select:not(:disabled), textarea:not(:disabled), [tabindex], [contenteditable=true]';
    const all = (root) => [...root.querySelectorAll('*')].flatMap((element) => [...(element.matches(focusable) ? [element] : []), ...(element.shadowRoot ? all(element.shadowRoot) : [])]);
    return all(document)
      .filter((element) => element.tabIndex >= 0 && element.checkVisibility({ visibilityProperty: true }) && !element.closest('[inert], [aria-hidden=true]'))
      .map(window.describeElement);
  });

/** walk presses Tab until the focus is back at the start, and returns what had it. It fails if an element with the focus cannot be seen, or looks as it does without. */
async function walk(page, limit) {
  const reached = [];
  for (let i = 0; i < limit; i++) {
    await page.keyboard.press('Tab');
    const stop = await page.evaluate(() => {
      // The ring of a control may be around what contains only it, or be drawn by its neighbour.
      const looks = (element) => {
        const drawn = [element, element.nextElementSibling];
        for (let one = element; drawn.length < 6; ) {
          one = one.parentElement ?? one.getRootNode().host;
          if (!one) break;
          drawn.push(one);
        }
        const styles = drawn.filter(Boolean).flatMap((one) => [null, '::before', '::after'].map((pseudo) => getComputedStyle(one, pseudo)));
        return styles.map((style) => [style.outline, style.boxShadow, style.border, style.backgroundColor].join()).join();
      };
      const previous = window.lastStop;
      const isUnmarked = previous && looks(previous.element) === previous.looks ? window.describeElement(previous.element) : undefined;
      let element = document.activeElement;
      while (element?.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
      if (!element || element === document.body || element === window.firstStop) return { isUnmarked };
      window.firstStop ??= element;
      window.lastStop = { element, looks: looks(element) };
      const { left, top, right, bottom } = element.getBoundingClientRect();
      const isSeen = right > 0 && bottom > 0 && left < innerWidth && top < innerHeight && right > left && bottom > top;
      return { isUnmarked, name: window.describeElement(element), isSeen };
    });
    assert.equal(stop.isUnmarked, undefined, 'an element looks the same with the focus and without');
    if (!stop.name) return reached;
    assert.ok(stop.isSeen, `${stop.name} has the focus and cannot be seen`);
    reached.push(stop.name);
  }
  throw new Error(`Tab does not leave the page: it was last at ${reached.slice(-5).join(', ')}`);
}

test('Tab reaches everything on every page, and leaves it', async (t) => {
  const page = await newDescribedPage(t);
  await signIn(page, server);
  for (const one of pages) {
    await t.test(one.name, async () => {
      await open(page, one);
      const stops = await stopsOf(page);
      assert.ok(stops.length > 5, stops.join());
      const reached = await walk(page, 2 * stops.length + 20);
      const missed = stops.filter((stop) => !reached.includes(stop));
      assert.deepEqual(missed, [], `not reached on ${one.name}; reached: ${reached.join(', ')}`);
    });
  }
});

test('at 200 % zoom, every page fits its width, and everything can be seen and used', async (t) => {
  // What zoom does: half as many CSS pixels, each twice as large.
  const page = await newPage(t, server, { viewport: { width: 640, height: 400 }, deviceScaleFactor: 2 });
  await signIn(page, server);
  for (const one of pages) {
    await t.test(one.name, async () => {
      await open(page, one);
      const { width, available } = await page.evaluate(() => ({ width: document.documentElement.scrollWidth, available: document.documentElement.clientWidth }));
      assert.ok(width <= available, `${one.name} is ${width} pixels wide, and has ${available}`);
      const controls = page.locator('main').locator('button, a[href], input, select').filter({ visible: true });
      for (const control of await controls.all()) {
        // What is wider than the page scrolls by itself. A trial click waits until nothing covers the control; a switch is drawn over its box.
        const isDrawn = await control.evaluate((element) => !element.matches('.pf-v6-c-switch__input') && !element.disabled);
        if (isDrawn) await control.click({ trial: true, timeout: 10_000 });
      }
      await accessible(page, `${one.name} at 200 %`);
    });
  }
});

test('a user without a mouse skips the navigation, acts on jobs, and answers questions', async (t) => {
  const page = await newPage(t, server);
  await signIn(page, server);
  await page.getByRole('link', { name: 'failed' }).waitFor();
  await page.goto(`${server.url}/jobs`);
  await page.getByRole('link', { name: 'failed' }).waitFor();
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to content');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.activeElement.id === 'main');
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Create job');

  // The menu of a row, its question, and back without an answer.
  const menu = page.getByRole('row').filter({ has: page.getByRole('link', { name: 'failed' }) }).getByRole('button', { name: /toggle|actions/i });
  await menu.focus();
  await page.keyboard.press('Enter');
  await page.getByRole('menu').waitFor();
  for (let i = 0; i < 10 && (await page.evaluate(() => document.activeElement.textContent)) !== 'Delete'; i++) await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog');
  await dialog.waitFor();
  for (let i = 0; i < 6; i++) {
    await page.keyboard.press('Tab');
    assert.ok(await dialog.evaluate((element) => element.contains(document.activeElement)), 'the focus stays in the question');
  }
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });

  // A job, and its tabs.
  await page.getByRole('link', { name: 'failed' }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'failed' }).waitFor();
  await page.getByRole('tab', { name: 'Events' }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('tab', { name: 'Events', selected: true }).waitFor();
  assert.match(page.url(), /tab=events/);
});

test('a job is created with the keyboard alone', async (t) => {
  const page = await newPage(t, server);
  await signIn(page, server, server.token, '/create');
  const fill = async (id, text) => {
    for (let i = 0; i < 60 && (await page.evaluate(() => document.activeElement.id)) !== id; i++) await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.id), id, 'Tab reaches the field');
    await page.keyboard.press('Control+A');
    await page.keyboard.type(text);
  };
  await page.getByLabel('Container image').waitFor();
  await fill('name', 'typed');
  await fill('namespace', namespace);
  await fill('image', 'registry.example/train:1');
  for (let i = 0; i < 60 && (await page.evaluate(() => document.activeElement.textContent)) !== 'Create'; i++) await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'typed' }).waitFor();
});
