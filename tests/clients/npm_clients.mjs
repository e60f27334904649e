// Client libraries from npm, each set to retry a POST, for test_client_matrix.py.
//
// stdin: {"timeout_ms", "retries", "body", "headers", "cells": [{"client", "url", "key"}, …]}
// stdout: [{"key", "ok", "status", "headers", "answer"}, …]: what the caller of the library gets at
// the end. status is null when that is no answer at all; "ok" is false when the library threw.
//
// The settings that docs/profiles.md lists are the ones here.
import { readFileSync } from "node:fs";
import Stripe from "stripe";
import axios from "axios";
import axiosRetry from "axios-retry";
import got, { RequestError } from "got";
import ky, { HTTPError } from "ky";
import { Agent, RetryAgent, request } from "undici";

const plan = JSON.parse(readFileSync(0));
const { timeout_ms, retries, body } = plan;
const headersOf = (cell) => ({ ...plan.headers, "Idempotency-Key": cell.key });

async function withStripe(cell) {
    const { hostname, port } = new URL(cell.url);
    const stripe = new Stripe("sk_test_matrix", { host: hostname, port, protocol: "http",
        maxNetworkRetries: retries, timeout: timeout_ms, telemetry: false });
    try {
        const intent = await stripe.paymentIntents.create(body, { idempotencyKey: cell.key });
        const { statusCode, headers } = intent.lastResponse;
        return { ok: true, status: statusCode, headers, answer: intent };
    } catch (error) {
        return { ok: false, status: error.statusCode, headers: error.headers };
    }
}

const retryingAxios = axios.create({ timeout: timeout_ms });
axiosRetry(retryingAxios, { retries, shouldResetTimeout: true,
    retryDelay: axiosRetry.exponentialDelay,
    retryCondition: (error) => !error.response || axiosRetry.isRetryableError(error) });

async function withAxios(cell) {
    try {
        const answer = await retryingAxios.post(cell.url, body, { headers: headersOf(cell) });
        return { ok: true, status: answer.status, headers: answer.headers, answer: answer.data };
    } catch (error) {
        return { ok: false, status: error.response?.status, headers: error.response?.headers };
    }
}

async function withGot(cell) {
    try {
        const answer = await got.post(cell.url, { json: body, headers: headersOf(cell),
            timeout: { request: timeout_ms }, retry: { limit: retries, methods: ["POST"] } });
        return { ok: true, status: answer.statusCode, headers: answer.headers,
            answer: JSON.parse(answer.body) };
    } catch (error) {
        if (!(error instanceof RequestError)) throw error;
        return { ok: false, status: error.response?.statusCode, headers: error.response?.headers };
    }
}

async function withKy(cell) {
    try {
        const answer = await ky.post(cell.url, { json: body, headers: headersOf(cell),
            timeout: timeout_ms, retry: { limit: retries, methods: ["post"],
                retryOnTimeout: true } });
        return { ok: true, status: answer.status, headers: Object.fromEntries(answer.headers),
            answer: await answer.json() };
    } catch (error) {
        const response = error instanceof HTTPError ? error.response : undefined;
        return { ok: false, status: response?.status,
            headers: response && Object.fromEntries(response.headers) };
    }
}

// Its timer ticks every half second and may fire a second late.
const retryAgent = new RetryAgent(new Agent({ headersTimeout: 0.75 * timeout_ms }), {
    methods: ["POST"], maxRetries: retries,
    errorCodes: ["ECONNRESET", "ECONNREFUSED", "EPIPE", "UND_ERR_SOCKET",
        "UND_ERR_HEADERS_TIMEOUT"] });

async function withUndici(cell) {
    try {
        const answer = await request(cell.url, { method: "POST", body: JSON.stringify(body),
            headers: { ...headersOf(cell), "Content-Type": "application/json" },
            dispatcher: retryAgent });
        return { ok: answer.statusCode < 400, status: answer.statusCode, headers: answer.headers,
            answer: await answer.body.json() };
    } catch (error) {
        return { ok: false, status: error.statusCode, headers: error.headers };
    }
}

const clients = { stripe: withStripe, "axios-retry": withAxios, got: withGot, ky: withKy,
    undici: withUndici };

const results = await Promise.all(plan.cells.map(async (cell) => {
    const result = await clients[cell.client](cell);
    return { key: cell.key, status: null, headers: {}, ...result };
}));
process.stdout.write(JSON.stringify(results), () => process.exit(0));
