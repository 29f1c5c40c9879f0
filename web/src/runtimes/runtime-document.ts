// SPDX-License-Identifier: Apache-2.0

import { parse, stringify } from 'yaml';
import { Problem } from '../api/client';
import type { RuntimeRef } from './runtime-ref';

/** RuntimeObject is a runtime of either scope, with the fields that the page reads. */
export interface RuntimeObject {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace?: string; resourceVersion?: string; labels?: Record<string, string>; annotations?: Record<string, string>; [field: string]: unknown };
  spec: { template?: { spec?: { replicatedJobs?: { name: string; template?: { spec?: { containers?: { image?: string }[] } } }[] } }; [field: string]: unknown };
}

/** textOf is a runtime as it is edited: without what the API server adds. */
export function textOf({ apiVersion, kind, metadata, spec }: RuntimeObject): string {
  const { name, namespace, labels, annotations } = metadata;
  return stringify({ apiVersion, kind, metadata: { name, namespace, labels, annotations }, spec });
}

/** imageOf is the image of a runtime's workers. */
export const imageOf = ({ spec }: RuntimeObject): string =>
  spec.template?.spec?.replicatedJobs?.find((one) => one.name === 'worker')?.template?.spec?.containers?.[0]?.image ?? '';

/** objectOf reads what the user has written. resourceVersion is that of the runtime when it was read. */
export function objectOf(text: string, resourceVersion?: string): RuntimeObject {
  const object = parse(text) as RuntimeObject | null;
  if (typeof object !== 'object' || object === null || Array.isArray(object)) throw new Problem(0, 'The document is not a runtime', ['Write apiVersion, kind, metadata and spec']);
  return resourceVersion ? { ...object, metadata: { ...object.metadata, resourceVersion } } : object;
}

/** refOf is which runtime a document is. */
export function refOf({ kind, metadata }: RuntimeObject): RuntimeRef {
  const name = metadata?.name ?? '';
  if (kind === 'ClusterTrainingRuntime') return { namespace: '', name };
  if (kind !== 'TrainingRuntime') throw new Problem(0, 'kind must be TrainingRuntime or ClusterTrainingRuntime');
  if (!metadata?.namespace) throw new Problem(0, 'metadata.namespace is required for a TrainingRuntime');
  return { namespace: metadata.namespace, name };
}

/** fresh is the document of a new runtime. */
export const fresh = (namespace: string) => `apiVersion: kubeflow.org/v2alpha1
kind: ${namespace ? 'TrainingRuntime' : 'ClusterTrainingRuntime'}
metadata:
  name: ""${namespace ? `\n  namespace: ${namespace}` : ''}
spec:
  mlPolicy:
    numNodes: 2
    slotsPerWorker: 1
    mpiImplementation: OpenMPI
  template:
    spec:
      replicatedJobs:
      - name: launcher
        template:
          spec:
            containers:
            - name: launcher
              # The command of a job is appended to this one.
              command: [mpirun, --bind-to, none, --map-by, slot]
              resources:
                requests: {cpu: "1", memory: 1Gi}
      - name: worker
        template:
          spec:
            containers:
            # Without a command, the workers need no sshd in their image.
            - name: worker
              resources:
                requests: {cpu: "2", memory: 4Gi}
`;
