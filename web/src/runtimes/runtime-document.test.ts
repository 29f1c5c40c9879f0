// SPDX-License-Identifier: Apache-2.0

import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { fresh, imageOf, objectOf, refOf, textOf } from './runtime-document';
import { pathOf } from './runtime-ref';

const stored = {
  apiVersion: 'kubeflow.org/v2alpha1',
  kind: 'ClusterTrainingRuntime',
  metadata: { name: 'mpi', uid: '1', resourceVersion: '7', generation: 2, labels: { team: 'a' } },
  spec: { template: { spec: { replicatedJobs: [{ name: 'launcher' }, { name: 'worker', template: { spec: { containers: [{ image: 'x:1' }] } } }] } } },
  status: {},
};

describe('a runtime', () => {
  test('is edited without what the API server adds', () => {
    const { apiVersion, kind, spec } = stored;
    expect(parse(textOf(stored))).toEqual({ apiVersion, kind, spec, metadata: { name: 'mpi', labels: { team: 'a' } } });
  });
  test('is sent with the version that was read', () => {
    expect(objectOf(textOf(stored), '7').metadata).toEqual({ name: 'mpi', labels: { team: 'a' }, resourceVersion: '7' });
    expect(objectOf(textOf(stored)).metadata.resourceVersion).toBeUndefined();
  });
  test('has the image of its workers', () => {
    expect(imageOf(stored)).toBe('x:1');
    expect(imageOf({ ...stored, spec: {} })).toBe('');
  });
  test.each(['', '[]', 'text'])('is not the document %j', (text) => expect(() => objectOf(text)).toThrow('not a runtime'));
});

describe('the scope of a runtime', () => {
  test('is in its kind', () => {
    expect(refOf(objectOf(fresh('')))).toEqual({ namespace: '', name: '' });
    expect(refOf(objectOf(fresh('vision')))).toEqual({ namespace: 'vision', name: '' });
  });
  test.each([
    ['kind: Pod', 'kind must be'],
    ['kind: TrainingRuntime\nmetadata: {name: a}', 'metadata.namespace is required'],
  ])('is required: %j', (text, message) => expect(() => refOf(objectOf(text))).toThrow(message));
  test('is in its address', () => {
    expect(pathOf({ namespace: '', name: 'mpi' })).toBe('/runtimes/cluster/mpi');
    expect(pathOf({ namespace: 'vision', name: 'mpi' })).toBe('/runtimes/namespaces/vision/mpi');
  });
});
