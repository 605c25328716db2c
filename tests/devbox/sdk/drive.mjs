// SPDX-License-Identifier: Apache-2.0
// The official SDK through the life of a box: node drive.mjs BASE_URL KUBECONFIG NAME; prints what it saw as JSON.
import { readFileSync } from 'node:fs'
import { File } from 'node:buffer'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [baseUrl, kubeconfig, name] = process.argv.slice(2)
const entry = createRequire(`${process.cwd()}/x.js`).resolve('@labring/devbox-sdk')
const { DevboxSDK } = await import(pathToFileURL(entry))
globalThis.File ??= File // node 18 has it there only
const sdk = new DevboxSDK({ baseUrl, kubeconfig: readFileSync(kubeconfig, 'utf8'), http: { timeout: 20000, retries: 0 } })
const seen = {}

const box = await sdk.createDevboxAsync({
	name,
	runtime: 'python',
	resource: { cpu: 1, memory: 2 },
	env: [{ name: 'SBXFS', value: '1' }],
	ports: [{ number: 8080, protocol: 'HTTP' }],
})
seen.created = box.status
await box.waitForReady({ timeout: 30000 })
seen.ready = box.status
seen.detail = await box.getDetailedInfo()
seen.listed = (await sdk.listDevboxes()).map((b) => [b.name, b.status, b.resources])
seen.templates = (await sdk.getAPIClient().getTemplates()).runtime.map((r) => r.iconId)

const bytes = Buffer.from([...Array(256).keys()])
await box.writeFile('dir/text.txt', 'grüße\n')
await box.writeFile('dir/bytes.bin', bytes, { encoding: 'base64' })
seen.text = (await box.readFile('dir/text.txt')).toString('utf8')
seen.bytes = (await box.readFile('dir/bytes.bin')).equals(bytes)
seen.download = (await box.downloadFile('dir/bytes.bin')).equals(bytes)
seen.files = (await box.listFiles('dir')).files.map((f) => [f.name, f.size, f.isDir]).sort()
seen.upload = (await box.uploadFiles({ 'up/one.txt': 'one', 'up/two/three.txt': Buffer.from('three') })).successCount
seen.search = (await box.searchFiles({ pattern: 'THREE' })).files.map((f) => f.split('/').pop())
seen.find = (await box.findInFiles({ keyword: 'grüße' })).files.map((f) => f.split('/').pop())
await box.moveFile('up/one.txt', 'up/moved.txt')
await box.renameFile('up/moved.txt', 'up/renamed.txt')
await box.deleteFile('up/renamed.txt')
seen.gone = await box.readFile('up/renamed.txt').then(() => 'read', (e) => e.code)

seen.python = await box.codeRun('import sys\nprint(6 * 7)\nprint("bad", file=sys.stderr)\nsys.exit(3)')
seen.node = await box.codeRun('console.log(process.argv.length)', { language: 'node' })
seen.sync = await box.execSync({ command: 'echo $WHO; pwd', env: { WHO: 'me' }, cwd: 'dir' })

const process1 = await box.executeCommand({ command: 'echo out; echo err >&2; sleep 300' })
seen.started = process1.processStatus
const until = async (what) => {
	for (const end = Date.now() + 20000; Date.now() < end; await new Promise((r) => setTimeout(r, 20))) {
		const value = await what()
		if (value) return value
	}
	throw new Error(`timeout: ${what}`)
}
seen.logs = await until(async () => {
	const { logs } = await box.getProcessLogs(process1.processId)
	return logs.length === 2 && logs.sort()
})
seen.running = (await box.getProcessStatus(process1.processId)).processStatus
await box.killProcess(process1.processId, { signal: 'SIGTERM' })
seen.killed = await until(async () => {
	const status = await box.getProcessStatus(process1.processId)
	return status.processStatus !== 'running' && [status.processStatus, status.exitCode]
})
seen.processes = (await box.listProcesses()).processes.length
seen.ports = (await box.getPorts()).ports

seen.monitor = (await box.getMonitorData({ start: Date.now() - 600000, end: Date.now(), step: '2m' })).map((p) => Object.keys(p).length)
await box.pause()
seen.paused = box.status
await box.start()
await box.waitForReady({ timeout: 30000 })
// the SDK keeps what it knew of the box for a minute: a new one sees the new token
const again = new DevboxSDK({ baseUrl, kubeconfig: readFileSync(kubeconfig, 'utf8'), http: { timeout: 20000, retries: 0 } })
seen.kept = (await (await again.getDevbox(name)).readFile('dir/text.txt')).toString('utf8')
await box.delete()
seen.deleted = (await sdk.listDevboxes()).length
await sdk.close()
console.log(JSON.stringify(seen))
