// SPDX-License-Identifier: Apache-2.0

import react from '@vitejs/plugin-react';
import { defineConfig } from 'vitest/config';

// The server that `make web-dev` sends the calls of the API to: odh server.
const server = process.env.TRIREME_SERVER ?? 'http://127.0.0.1:8090';

export default defineConfig({
  plugins: [react()],
  // These modules only pass D3 on, and their package has no licence file.
  resolve: { alias: [{ find: /^victory-vendor\/(d3-.+)$/, replacement: '$1' }] },
  build: {
    outDir: 'dist/page',
    emptyOutDir: true,
    // No data: addresses, which the page's policy forbids for fonts and scripts.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 2000,
    license: { fileName: 'licenses.md' },
  },
  server: { proxy: Object.fromEntries(['/api', '/version', '/session', '/openapi.json'].map((path) => [path, server])) },
  // A busy machine needs long for what takes milliseconds.
  test: { include: ['src/**/*.test.{ts,tsx}'], setupFiles: ['src/testing.ts'], testTimeout: 30_000 },
});
