// SPDX-License-Identifier: Apache-2.0

import { parse } from 'yaml';
import { describe, expect, test } from 'vitest';
import { cloned, fieldAt, fieldOf, fields, initial, joined, kindOf, runtimeOf, syntaxError, withField, withRuntime, words, type FieldName } from './document';

describe('form and YAML are one document', () => {
  test.each(Object.keys(fields) as FieldName[])('%s is written and read back', (name) => {
    const value = fields[name].type === 'number' ? '3' : 'value';
    const changed = withField(initial('vision'), name, value);
    expect(fieldOf(changed, name)).toBe(value);
    for (const other of (Object.keys(fields) as FieldName[]).filter((field) => field !== name)) {
      expect(fieldOf(changed, other)).toBe(fieldOf(initial('vision'), other));
    }
  });

  test('numbers are numbers, what is no number is left to the server', () => {
    expect(parse(withField(initial('a'), 'numNodes', '4')).spec.trainer.numNodes).toBe(4);
    expect(parse(withField(initial('a'), 'numNodes', 'four')).spec.trainer.numNodes).toBe('four');
  });

  test('comments and other fields stay', () => {
    const text = 'kind: TrainJob\nmetadata: {name: a, namespace: b} # mine\nspec:\n  # why\n  backoffLimit: 3\n';
    const changed = withField(text, 'image', 'registry/x:1');
    expect(changed).toContain('# mine');
    expect(changed).toContain('# why');
    expect(parse(changed).spec).toEqual({ backoffLimit: 3, trainer: { image: 'registry/x:1' } });
  });

  test('an empty optional field is removed', () => {
    expect(parse(withField(initial('a'), 'cpu', '')).spec.trainer.resourcesPerNode.requests).toEqual({ memory: '1Gi' });
  });

  test('the runtime has kind and name', () => {
    const changed = withRuntime(initial('a'), 'TrainingRuntime/mine');
    expect(parse(changed).spec.runtimeRef).toEqual({ kind: 'TrainingRuntime', name: 'mine' });
    expect(runtimeOf(changed)).toBe('TrainingRuntime/mine');
    expect(runtimeOf(initial('a'))).toBe('');
  });

  test('what is not YAML is not changed', () => {
    expect(syntaxError('a: [')).toBeTruthy();
    expect(syntaxError('- a')).toBeTruthy();
    expect(syntaxError(initial('a'))).toBeUndefined();
    expect(withField('a: [', 'name', 'x')).toBe('a: [');
    expect(kindOf('kind: MPIJob')).toBe('MPIJob');
  });

  test('an alias without its anchor is an error of the document', () => {
    const text = 'kind: TrainJob\nspec:\n  trainer: {command: *x}\n';
    expect(syntaxError(text)).toContain('Unresolved alias');
    expect(fieldOf(text, 'command')).toBe('');
    expect(kindOf(text)).toBe('TrainJob');
    expect(withField(text, 'name', 'a')).toBe(text);
    expect(syntaxError('spec: {a: &x [1], b: *x}')).toBeUndefined();
  });

  test('a field in an alias or in a text is not changed', () => {
    for (const text of ['spec: 5\n', 'a: &x {image: i}\nspec: {trainer: *x}\n']) expect(withField(text, 'image', 'other')).toBe(text);
  });

  test('a copy has a new name, and no status', () => {
    const copy = parse(
      cloned({ apiVersion: 'v', kind: 'TrainJob', metadata: { name: 'n'.repeat(63), namespace: 'a', uid: 'u', labels: { team: 'vision', 'training.kubeflow.org/job-name': 'n' } }, spec: { suspend: true, trainer: { image: 'i' } }, status: { phase: 'Failed' } }),
    );
    expect(copy.metadata).toEqual({ name: `${'n'.repeat(58)}-copy`, namespace: 'a', labels: { team: 'vision' } });
    expect(copy.spec).toEqual({ trainer: { image: 'i' } });
    expect(copy).not.toHaveProperty('status');
  });

  test('a copy has the annotations of users, and none of systems', () => {
    const mine = { 'sidecar.istio.io/inject': 'false', note: 'mine', 'training.kubeflow.org/tag-output': 'true', 'alpha.jobset.sigs.k8s.io/exclusive-topology': 'zone' };
    const systems = {
      'kubectl.kubernetes.io/last-applied-configuration': '{}',
      'argocd.argoproj.io/tracking-id': 'app:kubeflow.org/TrainJob:a/n',
      'training.kubeflow.org/created-by': 'someone',
      'training.kubeflow.org/asked-again-at': '2026-01-01T00:00:00Z',
    };
    const copyOf = (annotations: Record<string, string>) => parse(cloned({ apiVersion: 'v', kind: 'TrainJob', metadata: { name: 'n', namespace: 'a', annotations }, spec: {} })).metadata;
    expect(copyOf({ ...mine, ...systems }).annotations).toEqual(mine);
    expect(copyOf(systems)).not.toHaveProperty('annotations');
  });
});

test.each([
  ['metadata.name', 'name'],
  ['spec.trainer.image', 'image'],
  ['spec.trainer.command[1]', 'command'],
  ['spec.trainer.resourcesPerNode.requests[memory]', 'memory'],
  ['spec.trainer.resourcesPerNode.limits[cpu]', 'cpu'],
  ['spec.trainer.resourcesPerNode.limits[nvidia.com/gpu]', 'gpu'],
  ['spec.trainer.resourcesPerNode.limits[amd.com/gpu]', undefined],
  ['spec.launcher.resources.limits[cpu]', undefined],
  ['spec.trainer', undefined],
])('an error at %s is shown at %s', (path, name) => expect(fieldAt(path)).toBe(name));

test.each([
  [`python3 train.py --lr 0.1`, ['python3', 'train.py', '--lr', '0.1']],
  [`sh -c 'echo "$HOME"; exit 1'`, ['sh', '-c', 'echo "$HOME"; exit 1']],
  [`echo 'it'\\''s' ''`, ['echo', "it's", '']],
  ['', []],
])('%s is a list of words', (command, list) => {
  expect(words(command)).toEqual(list);
  expect(words(joined(list))).toEqual(list);
});

test('quotes and backslashes in commands', () => {
  expect(words('a "b c\\"d" e\\ f')).toEqual(['a', 'b c"d', 'e f']);
});
