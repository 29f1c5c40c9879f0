// @vitest-environment jsdom
// SPDX-License-Identifier: Apache-2.0

import { defaultHighlightStyle, highlightingFor } from '@codemirror/language';
import { EditorState } from '@codemirror/state';
import { tags } from '@lezer/highlight';
import { basicSetup } from 'codemirror';
import { expect, test } from 'vitest';
import { darkBackground, darkHighlight, look } from './editor-look';

test.each([
  ['light', defaultHighlightStyle],
  ['dark', darkHighlight],
] as const)('the %s theme has its own colours of YAML', (theme, want) => {
  const state = EditorState.create({ extensions: [basicSetup, look(theme)] });
  for (const tag of [tags.definition(tags.propertyName), tags.string, tags.labelName, tags.typeName, tags.meta, tags.lineComment]) {
    expect(highlightingFor(state, [tag])).toBe(want.style([tag]));
    expect(want.style([tag])).toBeTruthy();
  }
});

// As WCAG 2.1 defines them.
const luminance = (color: string) => {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16) / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};

test.each(darkHighlight.specs.map(({ color }) => color as string))('%s can be read on the dark background', (color) => {
  expect((luminance(color) + 0.05) / (luminance(darkBackground) + 0.05)).toBeGreaterThan(4.5);
});
