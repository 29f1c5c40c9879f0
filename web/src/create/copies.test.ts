// SPDX-License-Identifier: Apache-2.0

import { describe, expect, test } from 'vitest';
import client from '../../../sdk/python/src/trireme/training/client.py?raw';
import { asCommand, asPython, parameters } from './copies';
import { initial, withField, withRuntime } from './document';

describe('a command', () => {
  test.each([
    ['kind: TrainJob\n', "odh trainjob create -f - <<'EOF'\nkind: TrainJob\nEOF\n"],
    ['kind: MPIJob', "odh mpijob create -f - <<'EOF'\nkind: MPIJob\nEOF\n"],
    ['kind: TrainJob\na: |\n  x\nEOF\n', "odh trainjob create -f - <<'EOF_'\nkind: TrainJob\na: |\n  x\nEOF\nEOF_\n"],
  ])('of %j has the document, which the shell does not change', (text, want) => expect(asCommand(text)).toBe(want));
});

describe('Python', () => {
  test('has an argument for each field', () => {
    let text = withRuntime(initial('vision'), 'ClusterTrainingRuntime/mpi-openmpi-cpu');
    for (const [name, value] of [['name', 'train'], ['image', 'registry/x:1'], ['command', `sh -c 'echo "$HOME"'`], ['gpu', '2']] as const) text = withField(text, name, value);
    expect(asPython(`${text}  suspend: true\n  networkPolicy: {template: open}\n`)).toEqual({
      code: `from trireme.training import TrainingClient

TrainingClient().create_mpi_job(
    name="train",
    runtime="mpi-openmpi-cpu",
    num_nodes=2,
    image="registry/x:1",
    command=["sh", "-c", "echo \\"$HOME\\""],
    resources_per_node={"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 2}},
    namespace="vision",
    slots_per_worker=1,
    network_policy="open",
    suspend=True,
)
`,
    });
  });
  test('has the arguments of the client', () => {
    const [, signature = ''] = /def create_mpi_job\(([^)]*)\)/.exec(client) ?? [];
    const names = [...signature.matchAll(/^ +(\w+):/gm)].map(([, name]) => name);
    // dry_run is no field of the job, resources is another name of resources_per_node.
    const others = ['dry_run', 'resources'];
    expect(names).toEqual(expect.arrayContaining(others));
    expect(parameters.map(([name]) => name)).toEqual(names.filter((name = '') => !others.includes(name)));
  });
  test('has None for what the runtime sets', () => {
    expect(asPython('kind: TrainJob\nmetadata: {name: a}\nspec: {runtimeRef: {name: r}, trainer: {image: i}}')).toMatchObject({ code: expect.stringContaining('num_nodes=None,\n') });
  });
  test.each([
    ['kind: TrainJob\nspec: {hang: {action: Restart}, trainer: {image: i, workingDir: /x}}', ['spec.hang', 'spec.trainer.workingDir']],
    ['kind: TrainJob\nspec: {trainer: [1]}', ['spec.trainer']],
    ['kind: MPIJob', ['MPIJob']],
    ['a: [', []],
  ])('has no arguments for %j', (text, unknown) => expect(asPython(text)).toEqual({ unknown }));
});
