// SPDX-License-Identifier: Apache-2.0

import { parse } from 'yaml';
import { kindOf, syntaxError } from './document';

/** asCommand is a document as a command of a shell, which creates the job. */
export function asCommand(text: string): string {
  const lines = text.replace(/\n*$/, '').split('\n');
  let end = 'EOF';
  while (lines.includes(end)) end += '_';
  return [`odh ${kindOf(text).toLowerCase()} create -f - <<'${end}'`, ...lines, end, ''].join('\n');
}

/** Arguments of TrainingClient.create_mpi_job of the Python package, and the fields that they set. */
export const parameters: [string, string][] = [
  ['name', 'metadata.name'],
  ['runtime', 'spec.runtimeRef.name'],
  ['num_nodes', 'spec.trainer.numNodes'],
  ['image', 'spec.trainer.image'],
  ['command', 'spec.trainer.command'],
  ['args', 'spec.trainer.args'],
  ['resources_per_node', 'spec.trainer.resourcesPerNode'],
  ['env', 'spec.trainer.env'],
  ['volumes', 'spec.trainer.volumes'],
  ['volume_mounts', 'spec.trainer.volumeMounts'],
  ['namespace', 'metadata.namespace'],
  ['labels', 'metadata.labels'],
  ['annotations', 'metadata.annotations'],
  ['slots_per_worker', 'spec.trainer.slotsPerWorker'],
  ['launcher_resources', 'spec.launcher.resources'],
  ['initializer', 'spec.initializer'],
  ['network_policy', 'spec.networkPolicy.template'],
  ['active_deadline_seconds', 'spec.activeDeadlineSeconds'],
  ['ttl_seconds_after_finished', 'spec.ttlSecondsAfterFinished'],
  ['backoff_limit', 'spec.backoffLimit'],
  ['suspend', 'spec.suspend'],
];
/** Arguments without a default. */
const required = ['name', 'runtime', 'num_nodes', 'image'];
/** Fields that the client sets by itself. */
const implied = ['apiVersion', 'kind', 'spec.runtimeRef.kind', 'spec.runtimeRef.apiGroup'];

/** asPython is a TrainJob as a call of the Python package, or the fields for which it has no argument. */
export function asPython(text: string): { code: string } | { unknown: string[] } {
  if (syntaxError(text)) return { unknown: [] };
  const kind = kindOf(text);
  if (kind !== 'TrainJob') return { unknown: [kind] };
  const values = new Map<string, unknown>();
  const unknown: string[] = [];
  const visit = (value: unknown, path: string) => {
    const parameter = parameters.find(([, field]) => field === path);
    if (value === null || implied.includes(path)) return;
    if (parameter) values.set(parameter[0], value);
    else if (parameters.some(([, field]) => path === '' || field.startsWith(`${path}.`)) && typeof value === 'object' && !Array.isArray(value)) {
      for (const [name, child] of Object.entries(value)) visit(child, path ? `${path}.${name}` : name);
    } else unknown.push(path);
  };
  visit(parse(text), '');
  if (unknown.length > 0) return { unknown };
  const lines = parameters.filter(([name]) => values.has(name) || required.includes(name)).map(([name]) => `    ${name}=${literal(values.get(name))},\n`);
  return { code: `from trireme.training import TrainingClient\n\nTrainingClient().create_mpi_job(\n${lines.join('')})\n` };
}

/** literal is a value in Python. Texts of JSON are texts of Python, too. */
function literal(value: unknown): string {
  if (value === undefined || value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (Array.isArray(value)) return `[${value.map(literal).join(', ')}]`;
  if (typeof value === 'object') return `{${Object.entries(value).map(([name, child]) => `${JSON.stringify(name)}: ${literal(child)}`).join(', ')}}`;
  return JSON.stringify(value);
}
