import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Scanner;

import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Kafka's own mapping of the names in certificates. A line of standard input has the rules and a name, each in Base64, between
 * them a tab. Each is answered by "is" and the principal in Base64, or by "refused" where the rules are invalid, or by "none"
 * where the name has no principal.
 */
public class PrincipalOracle {
    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static String answer(String rules, String name) {
        SslPrincipalMapper mapper;
        try {
            mapper = SslPrincipalMapper.fromRules(rules);
        } catch (RuntimeException invalid) {
            return "refused";
        }
        try {
            return "is " + Base64.getEncoder().encodeToString(mapper.getName(name).getBytes(StandardCharsets.UTF_8));
        } catch (Exception none) {
            return "none";
        }
    }

    public static void main(String[] args) {
        Scanner lines = new Scanner(System.in);
        StringBuilder answers = new StringBuilder();
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split("\t", -1);
            answers.append(answer(text(words[0]), text(words[1]))).append('\n');
        }
        System.out.print(answers);
    }
}
