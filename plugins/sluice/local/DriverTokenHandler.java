package sluice.kafka;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Proxy;
import java.net.URL;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.auth.SaslExtensions;
import org.apache.kafka.common.security.auth.SaslExtensionsCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/**
 * Gets OAUTHBEARER's tokens from Spark's driver, where the connection's Python function makes them (sluice.spark.tokens).
 *
 * Kafka's own handlers take JWTs from an identity provider, which Amazon's signed URLs are not, and no function. Options
 * of the JAAS entry: url, secret, and certificate, the only one that is trusted. Compiled by Janino, hence no lambdas.
 */
public final class DriverTokenHandler implements AuthenticateCallbackHandler {
    private static final int PATIENCE_MS = 30000;
    private String url;
    private String secret;
    private SSLSocketFactory sockets;
    private Map extensions = Collections.emptyMap();

    public void configure(Map configs, String mechanism, List entries) {
        Map options = ((AppConfigurationEntry) entries.get(0)).getOptions();
        this.url = (String) options.get("url");
        this.secret = (String) options.get("secret");
        try {
            this.sockets = trusting((String) options.get("certificate"));
        } catch (GeneralSecurityException e) {
            throw new IllegalArgumentException("The driver's certificate can't be used", e);
        } catch (IOException e) {
            throw new IllegalArgumentException("The driver's certificate can't be read", e);
        }
    }

    public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
        for (int i = 0; i < callbacks.length; i++) {
            if (callbacks[i] instanceof OAuthBearerTokenCallback) {
                ((OAuthBearerTokenCallback) callbacks[i]).token(this.ask());
            } else if (callbacks[i] instanceof SaslExtensionsCallback) {
                ((SaslExtensionsCallback) callbacks[i]).extensions(new SaslExtensions(this.extensions));
            } else {
                throw new UnsupportedCallbackException(callbacks[i]);
            }
        }
    }

    public void close() {
    }

    private OAuthBearerToken ask() throws IOException {
        HttpsURLConnection connection = (HttpsURLConnection) new URL(this.url).openConnection(Proxy.NO_PROXY);
        connection.setSSLSocketFactory(this.sockets);
        connection.setConnectTimeout(PATIENCE_MS);
        connection.setReadTimeout(PATIENCE_MS);
        connection.setRequestProperty("Authorization", "Bearer " + this.secret);
        if (connection.getResponseCode() != 200) {
            throw new IOException("Spark's driver has no token for Kafka: status " + connection.getResponseCode()
                + "; its log says why");
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(connection.getInputStream(), "UTF-8"));
        try {
            long expires = Long.parseLong(lines.readLine());
            String principal = lines.readLine();
            String value = lines.readLine();
            Map found = new HashMap();
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                int equals = line.indexOf('=');
                found.put(line.substring(0, equals), line.substring(equals + 1));
            }
            this.extensions = found;
            return new Token(value, expires, principal);
        } finally {
            lines.close();
        }
    }

    private static SSLSocketFactory trusting(String certificate) throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        ByteArrayInputStream pem = new ByteArrayInputStream(certificate.getBytes("US-ASCII"));
        store.setCertificateEntry("driver", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context.getSocketFactory();
    }

    private static final class Token implements OAuthBearerToken {
        private final String value;
        private final long expires;
        private final String principal;
        private final long start = System.currentTimeMillis();

        Token(String value, long expires, String principal) {
            this.value = value;
            this.expires = expires;
            this.principal = principal;
        }

        public String value() {
            return this.value;
        }

        public Set scope() {
            return Collections.emptySet();
        }

        public long lifetimeMs() {
            return this.expires;
        }

        public String principalName() {
            return this.principal;
        }

        public Long startTimeMs() {
            return Long.valueOf(this.start);
        }
    }
}
