// SPDX-License-Identifier: Apache-2.0

import { Form, FormGroup, FormHelperText, FormSelect, FormSelectOption, Grid, GridItem, HelperText, HelperTextItem, TextInput } from '@patternfly/react-core';
import { useState } from 'react';
import { useRuntimes } from '../runtimes/use-runtimes';
import { useSettled } from '../shared/time';
import { fieldAt, fieldOf, fields, runtimeOf, withField, withRuntime, type Field, type FieldName } from './document';

interface Props {
  text: string;
  onChange: (text: string) => void;
  /** details of the server's error, by field. */
  details: { field: string; reason: string }[];
}

const order: FieldName[] = ['name', 'namespace', 'image', 'command', 'numNodes', 'slotsPerWorker', 'cpu', 'memory', 'gpu'];

/** JobForm edits the most common fields of a TrainJob in its document. */
export function JobForm({ text, onChange, details }: Props) {
  const namespace = useSettled(fieldOf(text, 'namespace'));
  const runtimes = useRuntimes(namespace);
  const runtime = runtimeOf(text);
  return (
    <Form onSubmit={(event) => event.preventDefault()}>
      <Grid hasGutter md={6}>
        {order.slice(0, 2).map((name) => (
          <FormField key={name} name={name} text={text} onChange={onChange} details={details} />
        ))}
        <GridItem>
          <FormGroup label="Runtime" fieldId="runtime" isRequired>
            <FormSelect id="runtime" value={runtime} onChange={(_, value) => onChange(withRuntime(text, value))} aria-describedby="runtime-help">
              <FormSelectOption value="" label="Choose a runtime" isDisabled />
              {runtime && !runtimes.data?.some((known) => `${known.kind}/${known.name}` === runtime) && <FormSelectOption value={runtime} label={runtime} />}
              {(runtimes.data ?? []).map((known) => (
                <FormSelectOption key={`${known.kind}/${known.name}`} value={`${known.kind}/${known.name}`} label={known.mpiImplementation ? `${known.name} (${known.mpiImplementation})` : known.name} />
              ))}
            </FormSelect>
            <FormHelperText>
              <HelperText id="runtime-help">
                <HelperTextItem variant={runtimes.error ? 'error' : 'default'}>{runtimes.error?.message ?? 'Template with the settings of MPI'}</HelperTextItem>
              </HelperText>
            </FormHelperText>
          </FormGroup>
        </GridItem>
        {order.slice(2).map((name) => (
          <FormField key={name} name={name} text={text} onChange={onChange} details={details} />
        ))}
      </Grid>
    </Form>
  );
}

function FormField({ name, text, onChange, details }: Props & { name: FieldName }) {
  const field: Field = fields[name];
  const shown = fieldOf(text, name);
  // What the user types is kept as typed: the document may write a command otherwise.
  const [typed, setTyped] = useState<{ value: string; shown: string }>();
  const value = typed && typed.shown === shown ? typed.value : shown;
  const wrong = details.find((detail) => fieldAt(detail.field) === name);
  return (
    <GridItem>
      <FormGroup label={field.label} fieldId={name} isRequired={field.isRequired}>
        <TextInput
          id={name}
          value={value}
          inputMode={field.type === 'number' ? 'numeric' : 'text'}
          isRequired={field.isRequired}
          validated={wrong ? 'error' : 'default'}
          aria-describedby={`${name}-help`}
          onChange={(_, next) => {
            const changed = withField(text, name, next);
            setTyped({ value: next, shown: fieldOf(changed, name) });
            onChange(changed);
          }}
        />
        <FormHelperText>
          <HelperText id={`${name}-help`}>
            <HelperTextItem variant={wrong ? 'error' : 'default'}>{wrong?.reason ?? field.help}</HelperTextItem>
          </HelperText>
        </FormHelperText>
      </FormGroup>
    </GridItem>
  );
}
