// SPDX-License-Identifier: Apache-2.0

import { ActionGroup, Content } from '@patternfly/react-core';
import { CopyButton } from '../shared/copy-button';
import { asCommand, asPython } from './copies';

/** CopyAs copies the document in forms that create the same job elsewhere. */
export function CopyAs({ text, isDisabled }: { text: string; isDisabled: boolean }) {
  const python = asPython(text);
  const code = 'code' in python ? python.code : '';
  return (
    <>
      <ActionGroup>
        <CopyButton label="Copy as YAML" variant="link" text={text} isDisabled={isDisabled} />
        <CopyButton label="Copy as command" variant="link" text={asCommand(text)} isDisabled={isDisabled} />
        <CopyButton label="Copy as Python" variant="link" text={code} isDisabled={isDisabled || !code} />
      </ActionGroup>
      {'unknown' in python && python.unknown.length > 0 && !isDisabled && <Content component="small">The Python client has no argument for {python.unknown.join(', ')}</Content>}
    </>
  );
}
