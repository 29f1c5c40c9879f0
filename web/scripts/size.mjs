// SPDX-License-Identifier: Apache-2.0

// Fails if the first load of the page is larger than 600 kB compressed with gzip: the index,
// the scripts and style sheets that it names, and what these import at once.
import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

const limit = 600_000;
const folder = 'dist/page';
const index = readFileSync(`${folder}/index.html`, 'utf8');
const first = new Set(['/index.html', ...[...index.matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)].map((match) => match[1])]);
for (const name of first) {
  if (!name.endsWith('.js')) continue;
  const script = readFileSync(folder + name, 'utf8');
  for (const match of script.matchAll(/\bimport\s*(?:[\w*{][^;"']*?from\s*)?["']\.\/([^"']+)["']/g)) first.add(`/assets/${match[1]}`);
}
let sum = 0;
for (const name of first) sum += gzipSync(readFileSync(folder + name)).length;
console.log(`first load: ${first.size} files, ${Math.round(sum / 1000)} kB of at most ${limit / 1000} kB`);
if (first.size < 3 || sum > limit) process.exit(1);
