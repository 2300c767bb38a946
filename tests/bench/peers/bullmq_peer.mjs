// BullMQ: one worker process with 64 jobs at once, jobs removed when done. `node bullmq_peer.mjs URL [worker]`.
// Completion is told by a datagram from the job's body, as with the other peers (see ../protocol.py).
import { fork } from 'node:child_process';
import dgram from 'node:dgram';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const require = createRequire(`${process.env.BENCH_NODE}/package.json`);
const { Queue, Worker } = require('bullmq');
const url = new URL(process.argv[2]);
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
const QUEUE = 'bench';
const CONCURRENCY = 64;

function work() {
  const socket = dgram.createSocket('udp4');
  const tell = async (job) => socket.send(String(job.data.n), job.data.port, '127.0.0.1');
  const worker = new Worker(QUEUE, tell, { connection, concurrency: CONCURRENCY });
  worker.waitUntilReady().then(() => process.send('ready'));
  process.on('disconnect', () => process.exit(0));
}

function summary(times, seconds) {
  const ordered = times.sort((a, b) => a - b);
  const at = (share) => ordered[Math.min(ordered.length - 1, Math.floor(ordered.length * share))];
  return { count: times.length, seconds, p50_ms: at(0.5), p99_ms: at(0.99) };
}

async function main() {
  const worker = fork(fileURLToPath(import.meta.url), [process.argv[2], 'worker'], { stdio: ['ignore', 2, 2, 'ipc'] });
  await new Promise((resolve) => worker.once('message', resolve));
  const waiting = new Map();
  const socket = dgram.createSocket('udp4');
  socket.on('message', (data) => {
    const n = Number(data.toString());
    waiting.get(n)?.();
    waiting.delete(n);
  });
  await new Promise((resolve) => socket.bind(0, '127.0.0.1', resolve));
  const { port } = socket.address();
  const queue = new Queue(QUEUE, { connection });
  let numbers = 0;

  async function one(times) {
    const n = numbers++;
    const began = performance.now();
    const ran = new Promise((resolve) => waiting.set(n, resolve));
    await queue.add('noop', { port, n }, { removeOnComplete: true, removeOnFail: true });
    await ran;
    times.push(performance.now() - began);
  }

  async function load(count, flight) {
    const times = [];
    let left = count;
    const began = performance.now();
    const lane = async () => { while (left-- > 0) await one(times); };
    await Promise.all(Array.from({ length: flight }, lane));
    return summary(times, (performance.now() - began) / 1000);
  }

  async function lone(count, gap) {
    const times = [];
    const began = performance.now();
    for (let i = 0; i < count; i++) {
      await new Promise((resolve) => setTimeout(resolve, gap));
      await one(times);
    }
    return summary(times, (performance.now() - began) / 1000);
  }

  const answer = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
  answer({ ready: true });
  for await (const line of createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    if (asked.op === 'bye') break;
    answer(asked.op === 'load' ? await load(asked.count, asked.flight) : await lone(asked.count, asked.gap_ms));
  }
  worker.kill('SIGKILL');
  process.exit(0);
}

if (process.argv[3] === 'worker') work();
else main();
