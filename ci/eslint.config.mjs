// Rules for the scripts of the pages, which ci/lint.sh checks.
import { createRequire } from "node:module";

// The recommended rules, and browsers' names, come with eslint.
const require = createRequire(`${process.env.ESLINT_DIRECTORY}/node_modules/eslint/package.json`);
const js = require("@eslint/js");
const { browser } = createRequire(require.resolve("@eslint/eslintrc"))("globals");

export default [
    js.configs.recommended,
    {
        languageOptions: { sourceType: "script", ecmaVersion: 2022, globals: browser },
        linterOptions: { reportUnusedDisableDirectives: "error" },
        rules: { eqeqeq: "error", "no-var": "error", "prefer-const": "error" },
    },
    {
        files: ["hvdperf/report/page/*.js"],
        languageOptions: { globals: { page: "writable", vegaEmbed: "readonly", vega: "readonly" } },
        // page.js declares what the others use.
        rules: { "no-redeclare": "off", "no-unused-vars": ["error", { varsIgnorePattern: "^page$" }] },
    },
    {
        // Written as asv's own scripts beside them.
        files: ["hvdperf/timeline/asv/*.js"],
        languageOptions: { globals: { $: "readonly" } },
        rules: { eqeqeq: "off", "no-var": "off", "prefer-const": "off" },
    },
];
