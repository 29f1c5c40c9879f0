// SPDX-License-Identifier: Apache-2.0

import { parseDocument, stringify } from 'yaml';
import type { Job } from '../api/client';

/**
 * The form and the editor show one document: its text. The form reads fields from the text,
 * and changes only those fields in it, so that comments and other fields stay.
 */
export interface Field {
  label: string;
  help: string;
  path: readonly string[];
  type: 'text' | 'number' | 'command';
  isRequired?: boolean;
}

const worker = ['spec', 'trainer'];

/** fields of the form, for TrainJobs. Everything else is edited as YAML. */
export const fields = {
  name: { label: 'Name', help: 'Lower case letters, digits and -; at most 63 characters', path: ['metadata', 'name'], type: 'text', isRequired: true },
  namespace: { label: 'Namespace', help: 'Namespace in which the job runs', path: ['metadata', 'namespace'], type: 'text', isRequired: true },
  image: { label: 'Container image', help: 'Image of the launcher and of the workers, with your program and MPI', path: [...worker, 'image'], type: 'text', isRequired: true },
  command: { label: 'Command', help: 'What mpirun starts in each rank, as in a shell: words in quotes are one argument', path: [...worker, 'command'], type: 'command' },
  numNodes: { label: 'Workers', help: 'Number of worker pods', path: [...worker, 'numNodes'], type: 'number' },
  slotsPerWorker: { label: 'Slots per worker', help: 'MPI processes in each worker; usually its number of GPUs', path: [...worker, 'slotsPerWorker'], type: 'number' },
  cpu: { label: 'CPU per worker', help: 'Such as 4 or 500m', path: [...worker, 'resourcesPerNode', 'requests', 'cpu'], type: 'text' },
  memory: { label: 'Memory per worker', help: 'Such as 16Gi', path: [...worker, 'resourcesPerNode', 'requests', 'memory'], type: 'text' },
  gpu: { label: 'GPUs per worker', help: 'Number of NVIDIA GPUs', path: [...worker, 'resourcesPerNode', 'limits', 'nvidia.com/gpu'], type: 'number' },
} as const satisfies Record<string, Field>;

export type FieldName = keyof typeof fields;

/** fieldAt is the field of the form that an error of the server is about: spec.trainer.command[1], limits[cpu]. */
export function fieldAt(path: string): FieldName | undefined {
  const wanted = path.replace(/\[([^\]]*)\]/g, '.$1');
  return (Object.keys(fields) as FieldName[]).find((name) => places(fields[name].path).some((place) => wanted === place || wanted.startsWith(`${place}.`)));
}

/** places of a field in errors: the form has one value for the request and the limit of a resource. */
function places(path: readonly string[]): string[] {
  const part = path.at(-2) ?? '';
  if (part !== 'requests' && part !== 'limits') return [path.join('.')];
  return ['requests', 'limits'].map((other) => [...path.slice(0, -2), other, path.at(-1)].join('.'));
}

/** initial is the document of a new job. */
export function initial(namespace: string): string {
  return stringify({
    apiVersion: 'kubeflow.org/v2alpha1',
    kind: 'TrainJob',
    metadata: { name: '', namespace },
    spec: {
      runtimeRef: { kind: 'ClusterTrainingRuntime', name: '' },
      trainer: { numNodes: 2, slotsPerWorker: 1, image: '', command: [], resourcesPerNode: { requests: { cpu: '1', memory: '1Gi' } } },
    },
  });
}

const own = 'training.kubeflow.org/';
/** The only annotation of Trireme that users set. */
const tagOutput = `${own}tag-output`;
/** Annotations by which other programs know this very job: kubectl apply, and Argo CD, which would delete a copy. */
const foreign = ['kubectl.kubernetes.io/last-applied-configuration', 'argocd.argoproj.io/tracking-id'];

/** cloned is the document of a copy of a job, under a new name, without what names or describes the job itself. */
export function cloned(job: Job): string {
  const { apiVersion, kind, metadata, spec } = job;
  return stringify({
    apiVersion,
    kind,
    metadata: {
      name: `${metadata.name.slice(0, 58)}-copy`,
      namespace: metadata.namespace,
      labels: selected(metadata.labels, (name) => !name.startsWith(own)),
      annotations: selected(metadata.annotations, (name) => name === tagOutput || (!name.startsWith(own) && !foreign.includes(name))),
    },
    spec: { ...spec, suspend: undefined },
  });
}

function selected(map: Record<string, string> = {}, isWanted: (name: string) => boolean): Record<string, string> | undefined {
  const entries = Object.entries(map).filter(([name]) => isWanted(name));
  return entries.length > 0 ? Object.fromEntries(entries) : undefined;
}

/** syntaxError of a document; undefined if it is a job that the form can show. */
export function syntaxError(text: string): string | undefined {
  const document = parseDocument(text);
  if (document.errors[0]) return document.errors[0].message;
  try {
    const value: unknown = document.toJS();
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return 'The document must be a job: a map with kind, metadata and spec';
  } catch (error) {
    // An alias without its anchor, such as *x, or too many aliases.
    return error instanceof Error ? error.message : String(error);
  }
  return undefined;
}

/** kindOf a document; the form knows only TrainJobs. */
export const kindOf = (text: string) => read(text, ['kind']) || 'TrainJob';

/** fieldOf returns a field of a document as the form shows it. */
export const fieldOf = (text: string, name: FieldName): string => read(text, fields[name].path);

export const runtimeOf = (text: string): string => {
  const name = read(text, ['spec', 'runtimeRef', 'name']);
  return name && `${read(text, ['spec', 'runtimeRef', 'kind'])}/${name}`;
};

function read(text: string, path: readonly string[]): string {
  if (syntaxError(text)) return '';
  let value: unknown = parseDocument(text).toJS();
  for (const name of path) value = typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;
  if (Array.isArray(value)) return joined(value.map(String));
  return value === undefined || value === null || typeof value === 'object' ? '' : String(value);
}

/** withField returns the document with one field changed; an empty value removes an optional field. */
export function withField(text: string, name: FieldName, value: string): string {
  const field: Field = fields[name];
  const content = field.type === 'number' && /^\d+$/.test(value) ? Number(value) : field.type === 'command' ? words(value) : value;
  return write(text, [[field.path, value === '' && !field.isRequired ? undefined : content]]);
}

/** withRuntime chooses a runtime, as Kind/name. */
export function withRuntime(text: string, runtime: string): string {
  const [kind, name] = runtime.split('/');
  return write(text, [
    [['spec', 'runtimeRef', 'kind'], kind],
    [['spec', 'runtimeRef', 'name'], name],
  ]);
}

function write(text: string, changes: [readonly string[], unknown][]): string {
  if (syntaxError(text)) return text;
  const document = parseDocument(text);
  try {
    for (const [path, value] of changes) {
      if (value === undefined) document.deleteIn(path);
      else document.setIn(path, document.createNode(value));
    }
    return document.toString({ lineWidth: 0 });
  } catch {
    // The field is in an alias, or in what is no map: it can only be changed as YAML.
    return text;
  }
}

/** words splits a command as a shell does: by spaces, with quotes, without substitution. */
export function words(command: string): string[] {
  const result: string[] = [];
  let word: string | undefined;
  let quote = '';
  for (let at = 0; at < command.length; at++) {
    const letter = command.charAt(at);
    if (quote) {
      if (letter === quote) quote = '';
      else if (letter === '\\' && quote === '"' && '"\\'.includes(command.charAt(at + 1) || ' ')) word = (word ?? '') + command.charAt(++at);
      else word = (word ?? '') + letter;
    } else if (letter === "'" || letter === '"') {
      quote = letter;
      word ??= '';
    } else if (letter === '\\' && at + 1 < command.length) {
      word = (word ?? '') + command.charAt(++at);
    } else if (/\s/.test(letter)) {
      if (word !== undefined) result.push(word);
      word = undefined;
    } else {
      word = (word ?? '') + letter;
    }
  }
  if (word !== undefined) result.push(word);
  return result;
}

/** joined is the inverse of words. */
export const joined = (list: string[]): string => list.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)).join(' ');
