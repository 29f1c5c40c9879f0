// SPDX-License-Identifier: Apache-2.0

// Generates src/api/schema.d.ts from the server's OpenAPI document. The schemas of pods are
// left out: they are 50,000 lines of types, of which the page uses none.
import { readFile, writeFile } from 'node:fs/promises';
import openapiTS, { astToString } from 'openapi-typescript';

const [source, target] = process.argv.slice(2);
const document = JSON.parse(await readFile(source, 'utf8'));

const freeForm = { type: 'object', additionalProperties: true };

/** withoutPods replaces the schemas of pods, and of what they consist of, by free objects. */
function withoutPods(node) {
  if (Array.isArray(node)) return node.map(withoutPods);
  if (node === null || typeof node !== 'object') return node;
  const properties = node.properties ?? {};
  if (properties.containers || properties.configMap || properties.valueFrom || properties.livenessProbe) return freeForm;
  return Object.fromEntries(Object.entries(node).map(([name, value]) => [name, withoutPods(value)]));
}

const types = astToString(await openapiTS(withoutPods(document)));
await writeFile(target, `// Generated from the OpenAPI document of the server; not committed.\n\n${types}`);
