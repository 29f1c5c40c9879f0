// SPDX-License-Identifier: Apache-2.0

// The dashboard behind oauth2-proxy, with dex as the issuer. test/integration/server sets the
// environment: PROXY and ISSUER are addresses, NAMESPACE has an MPIJob named mine that the user may
// change, LOGIN and PASSWORD are the user's, and USER_NAME is the API server's name for them.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { closeBrowser, newPage, rowOf } from './setup.mjs';

const { PROXY: url, ISSUER: issuer, NAMESPACE: namespace, LOGIN: login, PASSWORD: password } = process.env;
after(closeBrowser);

async function logIn(page) {
  await page.waitForURL(`${issuer}/**`);
  await page.locator('input[name=login]').fill(login);
  await page.locator('input[name=password]').fill(password);
  await page.locator('button[type=submit]').click();
  await page.waitForURL(`${url}/**`);
}

/** untilKnown waits until the API server accepts the user: it reads the keys of the issuer in the background. */
async function untilKnown(page) {
  for (let i = 0; i < 100; i++) {
    if ((await page.context().request.get(`${url}/api/v1/user`)).ok()) return;
    await page.waitForTimeout(1000);
  }
  throw new Error('the API server does not accept the tokens of the issuer');
}

test('a user signs in at the issuer and works with their own permissions', async (t) => {
  const page = await newPage(t, { url }, { alsoFrom: issuer });
  await page.goto(`${url}/jobs?kind=MPIJob`);
  await logIn(page);
  assert.match(page.url(), /kind=MPIJob/, 'the address of the page survives the login');
  await untilKnown(page);
  await page.reload();
  await page.getByRole('heading', { name: 'Training jobs' }).waitFor();
  await page.getByRole('banner').getByText(process.env.USER_NAME).waitFor();
  await rowOf(page, 'mine').waitFor();
  assert.equal(await rowOf(page, 'secret').count(), 0, 'jobs of other namespaces are not shown');
  assert.equal(await page.evaluate(() => JSON.stringify({ ...sessionStorage, ...localStorage })), '{}');
  const cookies = await page.context().cookies(url);
  assert.ok(cookies.length > 0 && cookies.every((cookie) => cookie.httpOnly && cookie.sameSite === 'Lax'), JSON.stringify(cookies.map(({ name, httpOnly, sameSite }) => ({ name, httpOnly, sameSite }))));

  await page.getByRole('link', { name: 'mine' }).click();
  await page.getByRole('button', { name: 'Suspend' }).click();
  await page.getByText('1 job is suspended').waitFor();
  await page.getByText('Suspended', { exact: true }).first().waitFor();

  // The first token of the session is valid for a minute. The proxy gets others.
  await page.waitForTimeout(100_000);
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.getByText('1 job is resumed').waitFor();
  await page.getByText('The connection is lost').waitFor({ state: 'detached' });

  await page.context().clearCookies({ domain: '127.0.0.1', name: /^_oauth2_proxy/ });
  await page.getByRole('button', { name: 'Suspend' }).click();
  await page.getByRole('heading', { name: 'Your session has ended' }).waitFor();
  await page.getByRole('button', { name: 'Sign in again' }).click();
  await logIn(page);
  await page.getByRole('heading', { name: 'mine' }).waitFor();
  assert.match(page.url(), new RegExp(`/jobs/${namespace}/mpijobs/mine$`));
});

test('a wrong password signs nobody in', async (t) => {
  const page = await newPage(t, { url }, { alsoFrom: issuer });
  await page.goto(url);
  await page.locator('input[name=login]').fill(login);
  await page.locator('input[name=password]').fill(`not ${password}`);
  await page.locator('button[type=submit]').click();
  await page.getByText('Invalid').waitFor();
  assert.ok(page.url().startsWith(issuer));
  const answer = await page.context().request.get(`${url}/api/v1/user`);
  assert.equal(answer.status(), 401);
});
