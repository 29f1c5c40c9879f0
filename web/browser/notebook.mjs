// SPDX-License-Identifier: Apache-2.0

// A function on two ranks, run in a cell of JupyterLab: `make notebook` serves it. NOTEBOOK is the
// address that it prints, SCREENSHOTS a folder or nothing. test/python runs this program.
import assert from 'node:assert/strict';
import path from 'node:path';
import { chromium } from 'playwright-core';

const address = new URL(process.env.NOTEBOOK);
const slow = { timeout: 180_000 };
const steps = 20;

const cell = `
import trireme

def work(steps):
    import time
    from mpi4py import MPI
    import trireme
    for step in range(steps):
        time.sleep(0.5)
        trireme.report(step=step + 1, of=steps, loss=1 / (step + 1))
    return MPI.COMM_WORLD.rank

small = {"cpu": "50m", "memory": "256Mi"}
job = trireme.Client().run(work, ${steps}, nodes=2, resources=small, launcher_resources=small)
job.follow()
print("results:", job.results())
job.delete()
`;

/** createNotebook writes a notebook with one cell, as a user of JupyterLab's API. */
async function createNotebook(name) {
  const content = {
    cells: [{ cell_type: 'code', id: 'work', execution_count: null, metadata: {}, outputs: [], source: cell }],
    metadata: { kernelspec: { display_name: 'Python 3 (ipykernel)', language: 'python', name: 'python3' } },
    nbformat: 4,
    nbformat_minor: 5,
  };
  const response = await fetch(new URL(`/api/contents/${name}`, address), {
    method: 'PUT',
    headers: { Authorization: `token ${address.searchParams.get('token')}` },
    body: JSON.stringify({ type: 'notebook', format: 'json', content }),
  });
  assert.ok(response.ok, await response.text());
}

/** progressValues are the values that the progress bar had until the results were printed. */
async function progressValues(page) {
  const values = [];
  const results = page.getByText('results: [0, 1]').first();
  for (const end = Date.now() + slow.timeout; !(await results.isVisible()); ) {
    assert.ok(Date.now() < end, `no results after the progress ${values}:\n${await page.locator('.jp-OutputArea').allInnerTexts()}`);
    const bar = page.locator('.jp-OutputArea progress').first();
    const value = (await bar.count()) ? await bar.evaluate((element) => element.value).catch(() => undefined) : undefined;
    if (value !== undefined && value !== values.at(-1)) values.push(value);
    if (values.length === 4) await screenshot(page, 'notebook-running');
    await page.waitForTimeout(100);
  }
  return values;
}

async function screenshot(page, name) {
  if (process.env.SCREENSHOTS) await page.screenshot({ path: path.join(process.env.SCREENSHOTS, `${name}.png`) });
}

const name = 'progress.ipynb';
await createNotebook(name);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-background-networking', '--no-first-run'],
});
const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
try {
  await page.goto(new URL(`/lab/tree/${name}${address.search}`, address).href, slow);
  // A kernel that is still starting may ignore the cell.
  await page.getByText('| Idle').first().waitFor(slow);
  await page.locator('.jp-Notebook .cm-content').first().click(slow);
  await page.keyboard.press('Shift+Enter');
  const values = await progressValues(page);
  await screenshot(page, 'notebook-finished');
  assert.ok(values.length > 3, `the progress bar had only the values ${values}`);
  assert.deepEqual(values, values.toSorted((a, b) => a - b));
  assert.equal(values.at(-1), steps);
  console.log(`the progress bar had the values ${values}`);
} catch (error) {
  await screenshot(page, 'notebook-failed');
  throw error;
} finally {
  await browser.close();
}
