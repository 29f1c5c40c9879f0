// SPDX-License-Identifier: Apache-2.0

import reactHooks from 'eslint-plugin-react-hooks';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['dist', 'build', 'node_modules', 'src/api/schema.d.ts'] },
  ...tseslint.configs.recommended,
  reactHooks.configs.flat['recommended-latest'],
  {
    rules: {
      // The page's policy forbids both; texts of jobs must never become HTML.
      'no-restricted-syntax': [
        'error',
        { selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']", message: 'Texts of jobs must not become HTML.' },
        { selector: "MemberExpression[property.name='innerHTML']", message: 'Texts of jobs must not become HTML.' },
      ],
    },
  },
);
