// SPDX-License-Identifier: Apache-2.0
// The official SDK for another program to use a box with: node use.mjs BASE_URL KUBECONFIG NAME, in the folder of the SDK.
// Each line of stdin, {"call": METHOD, "args": [...]}, is a call of a method of the box (of SDK's DevboxInstance), in this
// one warm process; each answer is a line, {"value": ...} or {"error": TEXT, "code": CODE}. Bytes are {"base64": TEXT}, both ways.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const [baseUrl, kubeconfig, name] = process.argv.slice(2)
const entry = createRequire(`${process.cwd()}/x.js`).resolve('@labring/devbox-sdk')
const { DevboxSDK } = await import(pathToFileURL(entry))
const sdk = new DevboxSDK({ baseUrl, kubeconfig: readFileSync(kubeconfig, 'utf8'), http: { timeout: 60000, retries: 0 } })
const box = await sdk.getDevbox(name)

const given = (arg) => (typeof arg?.base64 === 'string' ? Buffer.from(arg.base64, 'base64') : arg)
const told = (value) => (Buffer.isBuffer(value) ? { base64: value.toString('base64') } : value)

for await (const line of createInterface({ input: process.stdin })) {
	const { call, args = [] } = JSON.parse(line)
	const answer = await box[call](...args.map(given)).then(
		(value) => ({ value: told(value) ?? null }),
		(error) => ({ error: error.message, code: error.code })
	)
	process.stdout.write(`${JSON.stringify(answer)}\n`)
}
