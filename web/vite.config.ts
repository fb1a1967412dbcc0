import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

const outDir = "../src/interlock/server/dashboard";

/** Compress each asset once, as far as it goes, so that the server never has to. */
function compress(): Plugin {
  const params = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY };
  return {
    name: "compress",
    apply: "build",
    async closeBundle() {
      const folder = join(import.meta.dirname, outDir, "assets");
      for (const name of await readdir(folder)) {
        const file = join(folder, name);
        const plain = await readFile(file);
        await writeFile(`${file}.br`, await promisify(brotliCompress)(plain, { params }));
        await writeFile(`${file}.gz`, await promisify(gzip)(plain, { level: constants.Z_BEST_COMPRESSION }));
      }
    },
  };
}

// The server serves these files at "/". They never fetch anything from elsewhere.
export default defineConfig({
  base: "/",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  plugins: [compress()],
  build: {
    outDir,
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    // The notices of the packages in the bundle, which their licences ask for; the page "Admin" links to them.
    license: { fileName: "licenses.txt" },
  },
  worker: { format: "es" },
});
