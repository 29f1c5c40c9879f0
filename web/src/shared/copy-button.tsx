// SPDX-License-Identifier: Apache-2.0

import { Button, type ButtonProps } from '@patternfly/react-core';
import { useEffect, useState } from 'react';
import { copyText } from './clipboard';

/** Time for which the button shows the result. */
const shown = 3000;

/** CopyButton copies a text. */
export function CopyButton({ label, text, ...props }: { label: string; text: string } & Pick<ButtonProps, 'variant' | 'isDisabled'>) {
  const [isCopied, setCopied] = useState<boolean>();
  useEffect(() => {
    if (isCopied === undefined) return;
    const timer = setTimeout(() => setCopied(undefined), shown);
    return () => clearTimeout(timer);
  }, [isCopied]);
  return (
    <Button variant="secondary" {...props} onClick={() => void copyText(text).then(setCopied)}>
      {isCopied === undefined ? label : isCopied ? 'Copied' : 'Not copied: select the text'}
    </Button>
  );
}
