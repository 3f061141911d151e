// Unpacks the browser of @sparticuz/chromium beside itself, with the libraries and the fonts that a bare machine lacks. Needs no root.
// The package unpacks into the folder for temporary files, and its libraries only where a variable of AWS Lambda is set.
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

process.env.TMPDIR = dirname(fileURLToPath(import.meta.url));
process.env.AWS_EXECUTION_ENV = "AWS_Lambda_nodejs24.x";
const { default: chromium } = await import("@sparticuz/chromium");
await chromium.executablePath();
