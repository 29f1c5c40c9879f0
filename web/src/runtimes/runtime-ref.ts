// SPDX-License-Identifier: Apache-2.0

/** RuntimeRef names a runtime; without a namespace it is one of the cluster. */
export interface RuntimeRef {
  namespace: string;
  name: string;
}

export const kindOf = ({ namespace }: RuntimeRef) => (namespace ? 'TrainingRuntime' : 'ClusterTrainingRuntime');

/** pathOf is the address of a runtime's page. */
export const pathOf = ({ namespace, name }: RuntimeRef) => (namespace ? `/runtimes/namespaces/${namespace}/${name}` : `/runtimes/cluster/${name}`);
